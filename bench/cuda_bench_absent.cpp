// Without the CUDA backend.
#include "cuda_bench.h"

namespace replayssm::bench {

namespace {

Error absent() {
  return Error{
      "--device cuda: this build has no CUDA backend (cmake --preset cuda makes one); expected "
      "cpu"};
}

}  // namespace

Result<CudaBenchReport> run_cuda_bench(const CudaBenchOptions&) { return absent(); }

Result<GpuFacts> measure_gpu() { return absent(); }

}  // namespace replayssm::bench
