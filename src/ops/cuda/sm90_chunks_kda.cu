// chunk_prefill: instances of KDA.
#include "ops/cuda/sm90_chunks.cuh"

namespace replayssm::cuda {

Status launch_chunks_kda(const StepPlan& plan, const StepArgs& args, cudaStream_t stream) {
  return launch_chunks<GateKind::kda>(plan, args, stream);
}

}  // namespace replayssm::cuda
