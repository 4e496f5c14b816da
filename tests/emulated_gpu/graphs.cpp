// CUDA's functions of graphs: what was captured on a stream is put there again, one operation after another.
#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulated_gpu/internal.hpp"
#include "tests/emulated_gpu/streams.hpp"

namespace emulated = canzona::emulated_gpu;

struct CUgraph_st {
  int device;
  std::vector<std::function<void()>> work;
};

struct CUgraphExec_st {
  int device;
  std::vector<std::function<void()>> work;
};

namespace canzona::emulated_gpu {
namespace {

thread_local const Stream* captured_here = nullptr;

}  // namespace

bool is_forbidden_by_capture(const char* caller) {
  if (captured_here == nullptr) return false;
  complain(std::string(caller) + " while the calling thread captures a stream");
  return true;
}

}  // namespace canzona::emulated_gpu

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  emulated::Stream* open = emulated::launchable_stream("cudaStreamBeginCapture", stream);
  if (open == nullptr || emulated::captured_here != nullptr || !open->begin_capture()) {
    return emulated::keep(cudaErrorIllegalState);
  }
  emulated::captured_here = open;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  constexpr auto kKept = emulated::Captured::kept;
  emulated::Stream* open = emulated::launchable_stream("cudaStreamEndCapture", stream, kKept);
  if (open == nullptr || open != emulated::captured_here) return emulated::keep(cudaErrorIllegalState);
  emulated::captured_here = nullptr;
  *graph = new CUgraph_st{open->device(), open->end_capture()};
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  if (executable == nullptr || graph == nullptr) return emulated::keep(cudaErrorInvalidValue);
  *executable = new CUgraphExec_st{graph->device, graph->work};
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  emulated::Stream* open = emulated::launchable_stream("cudaGraphLaunch", stream);
  if (open == nullptr) return emulated::keep(cudaErrorInvalidResourceHandle);
  if (executable == nullptr || executable->device != open->device()) return emulated::keep(cudaErrorInvalidValue);
  for (const std::function<void()>& operation : executable->work) open->push(operation);
  return cudaSuccess;
}
