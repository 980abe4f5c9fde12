// window_step for several tokens a row: the kernel and its launch for the instances of one gate.
#pragma once

#include "ops/cuda/instances.h"
#include "ops/cuda/launch_kernel.cuh"
#include "ops/cuda/window_unit.cuh"

namespace replayssm::cuda {

Status launch_windows_gdn(const StepPlan& plan, const StepArgs& args, cudaStream_t stream);
Status launch_windows_kda(const StepPlan& plan, const StepArgs& args, cudaStream_t stream);

template <class Layout>
__global__ void __launch_bounds__(Layout::kThreadsMax, 1)
    windows_kernel(const __grid_constant__ StepArgs args, int stages, int groups) {
  extern __shared__ __align__(1024) unsigned char shared[];
  window_block<Layout>(args, shared, stages, groups);
}

template <GateKind kGate>
Status launch_windows(const StepPlan& plan, const StepArgs& args, cudaStream_t stream) {
  return visit_window_layout<kGate>(plan, if_built(plan, [&]<class Layout>(Layout) {
                                      return launch_with_plan<StepArgs>(windows_kernel<Layout>,
                                                                        plan, args, stream);
                                    }));
}

}  // namespace replayssm::cuda
