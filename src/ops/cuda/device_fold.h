// A fold of any number of records, as launches of the fold kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "ops/cuda/step_plan.h"
#include "ops/cuda/tables.h"
#include "ops/linear_ops.h"

namespace replayssm::cuda {

// fold of `args`, which were checked. Records beyond one block are folded block by block, each
// rounded to the state's type, as steps would have folded them: one launch for the first block of
// all rows, one more for each further block. A buffer gets fp32 numbers of the state's precision: a
// bf16 state is folded into memory of the stream's pool first. Error: what the runtime says, and
// geometries that plan_fold refuses.
Status fold_on_device(const replayssm::FoldArgs& args, const DeviceLimits& limits, Tables& tables,
                      cudaStream_t stream);

}  // namespace replayssm::cuda
