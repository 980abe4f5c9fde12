// window_step for several tokens a row: instances of GDN.
#include "ops/cuda/sm90_windows.cuh"

namespace replayssm::cuda {

Status launch_windows_gdn(const StepPlan& plan, const StepArgs& args, cudaStream_t stream) {
  return launch_windows<GateKind::gdn>(plan, args, stream);
}

}  // namespace replayssm::cuda
