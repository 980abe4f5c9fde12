// Common to the launchers: one kernel with a plan's grid.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/built_instances.h"
#include "ops/cuda/cuda_check.h"
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
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(plan.blocks));
  config.blockDim = dim3(static_cast<unsigned>(plan.threads));
  config.dynamicSmemBytes = plan.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = plan.overlap ? 1 : 0;
  return REPLAYSSM_CUDA_STATUS(cudaLaunchKernelEx(&config, kernel, args, plan.stages, plan.groups));
}

}  // namespace replayssm::cuda
