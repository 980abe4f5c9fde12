// chunk_prefill: instances of GDN.
#include "ops/cuda/sm90_chunks.cuh"

namespace replayssm::cuda {

Status launch_chunks_gdn(const StepPlan& plan, const StepArgs& args, cudaStream_t stream) {
  return launch_chunks<GateKind::gdn>(plan, args, stream);
}

}  // namespace replayssm::cuda
