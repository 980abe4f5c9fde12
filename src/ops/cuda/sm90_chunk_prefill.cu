// chunk_prefill: launch.
#include "ops/cuda/launch.h"
#include "ops/cuda/sm90_chunks.cuh"

namespace replayssm::cuda {

Status launch_chunk_prefill(const StepPlan& plan, const StepArgs& args, cudaStream_t stream) {
  return plan.gate == GateKind::gdn ? launch_chunks_gdn(plan, args, stream)
                                    : launch_chunks_kda(plan, args, stream);
}

}  // namespace replayssm::cuda
