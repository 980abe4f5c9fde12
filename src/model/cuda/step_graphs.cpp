#include "model/cuda/step_graphs.h"

#include <utility>

#include "ops/cuda/cuda_check.h"

namespace replayssm::cuda {

Result<StepGraphs::Graph> StepGraphs::capture(cudaStream_t stream,
                                              const std::function<Status()>& launch) {
  REPLAYSSM_TRY(
      REPLAYSSM_CUDA_STATUS(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)));
  const Status launched = launch();
  cudaGraph_t graph = nullptr;
  const Status ended = REPLAYSSM_CUDA_STATUS(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t made = nullptr;
  Status status = launched.ok() ? ended : launched;
  if (status.ok()) status = REPLAYSSM_CUDA_STATUS(cudaGraphInstantiate(&made, graph, 0));
  if (graph != nullptr) cudaGraphDestroy(graph);
  REPLAYSSM_TRY(status);
  return Graph(made);
}

Status StepGraphs::run(const StepShape& shape, cudaStream_t stream,
                       const std::function<Status()>& launch) {
  const auto [entry, is_new] = graphs_.try_emplace(shape);
  if (is_new) return launch();
  if (entry->second == nullptr) {
    auto graph = capture(stream, launch);
    if (!graph) {
      cudaGetLastError();  // no memory for one more graph: the step can do without
      return launch();
    }
    entry->second = std::move(*graph);
  }
  return REPLAYSSM_CUDA_STATUS(cudaGraphLaunch(entry->second.get(), stream));
}

}  // namespace replayssm::cuda
