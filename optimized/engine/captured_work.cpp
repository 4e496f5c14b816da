#include "optimized/engine/captured_work.hpp"

namespace canzona::optimized {

void CapturedWork::run(Stream& stream, std::optional<std::int64_t> form, const std::function<void()>& work) {
  if (!form) return work();
  const auto [known, is_first] = graphs_.try_emplace(*form);
  std::unique_ptr<Graph>& graph = known->second;
  if (is_first) return work();
  if (graph == nullptr) graph = stream.capture(work);
  if (graph == nullptr) return work();
  graph->launch(stream);
}

}  // namespace canzona::optimized
