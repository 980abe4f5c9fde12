// packed_step for one token a row: kernel instances and launch.
#include "ops/cuda/instances.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_kernel.cuh"
#include "ops/cuda/step_unit.cuh"

namespace replayssm::cuda {
namespace {

template <class Layout>
__global__ void __launch_bounds__(2 * kGroupThreads + 32, 1)
    packed_step_kernel(const __grid_constant__ StepArgs args, int stages, int groups) {
  extern __shared__ __align__(1024) unsigned char shared[];
  step_block<Layout>(args, shared, stages, groups);
}

}  // namespace

Status launch_packed_step(const StepPlan& plan, const StepArgs& args, cudaStream_t stream) {
  return visit_layout_of_tile<0>(plan, if_built(plan, [&]<class Layout>(Layout) {
                                   return launch_with_plan<StepArgs>(packed_step_kernel<Layout>,
                                                                     plan, args, stream);
                                 }));
}

}  // namespace replayssm::cuda
