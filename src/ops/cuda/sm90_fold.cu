// fold of all layers: kernel instances and launch.
#include "ops/cuda/fold_unit.cuh"
#include "ops/cuda/instances.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_kernel.cuh"

namespace replayssm::cuda {
namespace {

template <class Layout>
__global__ void __launch_bounds__(2 * kGroupThreads + 32, 1)
    fold_kernel(const __grid_constant__ FoldArgs args, int stages, int groups) {
  extern __shared__ __align__(1024) unsigned char shared[];
  fold_block<Layout>(args, shared, stages, groups);
}

}  // namespace

Status launch_fold(const StepPlan& plan, const FoldArgs& args, cudaStream_t stream) {
  const auto launch = if_built(plan, [&]<class Layout>(Layout) {
    return launch_with_plan<FoldArgs>(fold_kernel<Layout>, plan, args, stream);
  });
  switch (plan.record_tile) {
    case 16:
      return visit_full_layout_of_tile<16>(plan, launch);
    case 32:
      return visit_full_layout_of_tile<32>(plan, launch);
    default:
      return visit_full_layout_of_tile<64>(plan, launch);
  }
}

}  // namespace replayssm::cuda
