// Versions of window_step for one token a row that lost, over the same units and arithmetic as the
// one in use, so that what is timed is what differs. Numbers and reasons: NOTES.md.
//
// unpipelined  a block of four warps for each unit: looks up, copies, computes, ends. Several
// blocks
//              of a multiprocessor hide each other's waits.
// many_copies  persistent blocks and a producer warp as today, but the producer of version 1: looks
//              each unit up when its turn comes and issues one small bulk copy for every row of d.
//
// Instances: full units, records up to 16, both gates, both state types.
#pragma once

#include <cuda_runtime_api.h>

#include "core/result.h"
#include "ops/cuda/step_args.h"
#include "ops/cuda/step_plan.h"

namespace replayssm::cuda::lab {

Status launch_unpipelined(const StepPlan& plan, const StepArgs& args, cudaStream_t stream);
Status launch_many_copies(const StepPlan& plan, const StepArgs& args, cudaStream_t stream);

}  // namespace replayssm::cuda::lab
