// Common to the launchers: one kernel with a plan's grid.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/built_instances.h"
#include "ops/cuda/cuda_check.h"
#include "ops/cuda/overlapped_launch.h"
#include "ops/cuda/step_plan.h"

namespace replayssm::cuda {

template <class Args>
Status launch_with_plan(void (*kernel)(Args, int, int), const StepPlan& plan, const Args& args,
                        cudaStream_t stream) {
  // The device's limit and not this plan's need: the setting belongs to the kernel, and another
  // thread may launch it with another plan in between.
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaFuncSetAttribute(
      reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
      static_cast<int>(plan.shared_limit))));
  // Shared memory rather than cache, so that two blocks share a multiprocessor wherever they fit.
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaFuncSetAttribute(
      reinterpret_cast<const void*>(kernel), cudaFuncAttributePreferredSharedMemoryCarveout,
      static_cast<int>(cudaSharedmemCarveoutMaxShared))));
  return launch_overlapped(kernel,
                           {dim3(static_cast<unsigned>(plan.blocks)),
                            static_cast<unsigned>(plan.threads), plan.shared_bytes, plan.overlap},
                           stream, args, plan.stages, plan.groups);
}

}  // namespace replayssm::cuda
