// window_step: launch, and the kernel instances for one token a row.
#include "ops/cuda/instances.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_kernel.cuh"
#include "ops/cuda/sm90_windows.cuh"
#include "ops/cuda/step_unit.cuh"

namespace replayssm::cuda {
namespace {

template <class Layout>
__global__ void __launch_bounds__(2 * kGroupThreads + 32, 1)
    window_step_kernel(const __grid_constant__ StepArgs args, int stages, int groups) {
  extern __shared__ __align__(1024) unsigned char shared[];
  step_block<Layout>(args, shared, stages, groups);
}

}  // namespace

Status launch_window_step(const StepPlan& plan, const StepArgs& args, cudaStream_t stream) {
  if (plan.window > 1) {
    return plan.gate == GateKind::gdn ? launch_windows_gdn(plan, args, stream)
                                      : launch_windows_kda(plan, args, stream);
  }
  const auto launch = if_built(plan, [&]<class Layout>(Layout) {
    return launch_with_plan<StepArgs>(window_step_kernel<Layout>, plan, args, stream);
  });
  return plan.record_tile == 16 ? visit_layout_of_tile<16>(plan, launch)
                                : visit_layout_of_tile<32>(plan, launch);
}

}  // namespace replayssm::cuda
