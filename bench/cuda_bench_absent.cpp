// Without the CUDA backend.
#include "cuda_bench.h"

namespace replayssm::bench {

Result<CudaBenchReport> run_cuda_bench(const CudaBenchOptions&) {
  return Error{
      "--device cuda: this build has no CUDA backend (cmake --preset cuda makes one); expected "
      "cpu"};
}

}  // namespace replayssm::bench
