// The forward pass of the Qwen3.5 family on a GPU: a Model whose sequence memory is the device's.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "core/result.h"
#include "model/model.h"
#include "model/weights.h"

namespace replayssm::cuda {

struct CudaDecoderSizes {
  int rows = 0;        // the most of a step
  int logit_rows = 0;  // the most of a step
  int page_tokens = 16;
  int context_length = 0;  // 0: the configuration's
  bool graphs = true;      // steps of windows of one length are captured
};

// Copies the weights to the current device; the host's are kept for options.host_embeddings only.
// Everything it launches goes to `stream`, which outlives it; forward() returns when the logits are
// on the host. Steps of windows of one length are captured in CUDA graphs, one for each padded
// number of rows. With options.deterministic a token's bits depend on the tokens before it alone.
// Errors: activations other than bf16, and those of DeviceWeights and PagedAttention.
Result<std::unique_ptr<Model>> make_cuda_decoder(const ModelConfig& config, Weights weights,
                                                 const ModelOptions& options,
                                                 const CudaDecoderSizes& sizes,
                                                 cudaStream_t stream);

}  // namespace replayssm::cuda
