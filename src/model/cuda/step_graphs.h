// Steps of one shape as CUDA graphs: captured once, replayed for every step of that shape.
#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "core/result.h"

namespace replayssm::cuda {

// Everything that a step's launches bake in.
struct StepShape {
  int rows = 0;
  int tokens = 0;
  int logit_rows = 0;
  const int* tables = nullptr;   // where the step's numbers lie
  const void* memory = nullptr;  // the sequences' cursors, which stand for all of their memory
  std::int64_t attention = 0;    // PagedAttention::cut_shape()
  int hidden = 0;                // HiddenCopies::version()
  auto operator<=>(const StepShape&) const = default;
};

class StepGraphs {
 public:
  // The first step of a shape is launched as it is, the second one is captured; from then on the
  // graph is replayed. Where it cannot be captured the step is launched as it is. `launch` puts the
  // step's kernels on `stream`.
  Status run(const StepShape& shape, cudaStream_t stream, const std::function<Status()>& launch);

 private:
  struct GraphDeleter {
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };
  using Graph = std::unique_ptr<CUgraphExec_st, GraphDeleter>;
  static Result<Graph> capture(cudaStream_t stream, const std::function<Status()>& launch);

  std::map<StepShape, Graph> graphs_;  // null: seen once
};

}  // namespace replayssm::cuda
