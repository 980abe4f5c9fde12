// `replayssm bench --device cuda`: the options and the report of op_bench.h, on a GPU.
#pragma once

#include <string>

#include "op_bench.h"

namespace replayssm::bench {

// How a launch meets the one before it.
//   plain    after its end
//   overlap  prologue and launch latency overlap with it
//   settled  states and records are fetched while it still runs: what a model does, whose previous
//            launch writes this layer's inputs and nothing else that this layer reads
enum class LaunchOrder { plain, overlap, settled };

struct CudaBenchOptions {
  BenchOptions op;
  LaunchOrder order = LaunchOrder::settled;
  int layers = 1;     // fold: layers in one launch
  int ring_rows = 0;  // fold: rows of the ring; 0 is twice the fold block
};

struct CudaBenchReport {
  BenchReport report;
  std::string gpu;
};

// A GPU and what its memory can do.
struct GpuFacts {
  std::string name;
  Ceilings ceilings;
};
// Of the current GPU. Errors as run_cuda_bench().
Result<GpuFacts> measure_gpu();

// All operations. Error: no CUDA backend in this build, no GPU, an argument out of range, or a
// check of the output that failed; each in one line.
Result<CudaBenchReport> run_cuda_bench(const CudaBenchOptions& options);

}  // namespace replayssm::bench
