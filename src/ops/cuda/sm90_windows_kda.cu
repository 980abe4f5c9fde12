// window_step for several tokens a row: instances of KDA.
#include "ops/cuda/sm90_windows.cuh"

namespace replayssm::cuda {

Status launch_windows_kda(const StepPlan& plan, const StepArgs& args, cudaStream_t stream) {
  return launch_windows<GateKind::kda>(plan, args, stream);
}

}  // namespace replayssm::cuda
