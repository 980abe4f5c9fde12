// What the GPU's memory can do, measured in the same run as the operations.
#pragma once

#include <cuda_runtime_api.h>

#include "ceilings.h"
#include "core/result.h"

namespace replayssm::bench {

// Copy, in-place update and read of 2 GiB, bytes read + written; medians of nine.
Result<Ceilings> measure_cuda_ceilings(cudaStream_t stream);

}  // namespace replayssm::bench
