// Graphs of the emulated GPU, and the misuse that it has to see.
#include "tests/emulated_gpu/test_support.hpp"

namespace canzona::emulated_gpu {
namespace {

using Graphs = EmulatedGpu;

cudaGraphExec_t captured(cudaStream_t stream, const std::function<void()>& body) {
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  body();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  return executable;
}

TEST_F(Graphs, RunWhatWasCapturedWheneverTheyAreLaunchedAndInOrder) {
  const TestStream stream;
  auto* values = upload<int>({5, 0}, stream);
  const cudaGraphExec_t graph = captured(stream, [&] {
    launch(stream, [=] { ++values[0]; });
    cudaMemcpyAsync(values + 1, values, sizeof(int), cudaMemcpyDeviceToDevice, stream);
  });
  EXPECT_EQ(fetch(values, 2, stream), (std::vector<int>{5, 0}));
  for (int launches = 1; launches <= 3; ++launches) {
    EXPECT_EQ(cudaGraphLaunch(graph, stream), cudaSuccess);
    EXPECT_EQ(fetch(values, 2, stream), (std::vector<int>{5 + launches, 5 + launches}));
  }
  EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
}

TEST_F(Graphs, RefuseHostFunctions) {
  const TestStream stream;
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_NE(cudaLaunchHostFunc(
                stream, [](void*) {}, nullptr),
            cudaSuccess);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphDestroy(graph);
  ASSERT_EQ(complaints().size(), 1U);
  EXPECT_NE(complaints().front().find("cudaLaunchHostFunc is given a stream that is captured"), std::string::npos);
  forget_complaints();
}

TEST_F(Graphs, RefuseEventsAndWaits) {
  const TestStream stream;
  const TestEvent event;
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_NE(cudaEventRecord(event, stream), cudaSuccess);
  EXPECT_NE(cudaStreamWaitEvent(stream, event, 0), cudaSuccess);
  EXPECT_NE(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(complaints().size(), 3U);
  forget_complaints();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphDestroy(graph);
}

TEST_F(Graphs, RefuseAllocationsOfTheThreadThatCaptures) {
  const TestStream stream;
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 8), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(complaints().size(), 1U);
  forget_complaints();
  std::thread([] {
    void* other = nullptr;
    EXPECT_EQ(cudaMalloc(&other, 8), cudaSuccess);
    EXPECT_EQ(cudaFree(other), cudaSuccess);
  }).join();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphDestroy(graph);
}

TEST_F(Graphs, AreOfOneDevice) {
  const TestStream stream;
  const cudaGraphExec_t graph = captured(stream, [] {});
  cudaSetDevice(1);
  const TestStream other;
  EXPECT_EQ(cudaGraphLaunch(graph, other), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
  cudaSetDevice(0);
}

TEST_F(Graphs, AreCapturedOnceAtATimeAndEndedWhereTheyBegan) {
  const TestStream stream, other;
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(other, &graph), cudaErrorIllegalState);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphDestroy(graph);
}

}  // namespace
}  // namespace canzona::emulated_gpu
