// The draft head of the Qwen3.5 family (model/mtp_head.h) on a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "core/result.h"
#include "model/cuda/decoder_buffers.h"
#include "model/cuda/device_weights.h"
#include "model/cuda/gemm.h"
#include "model/cuda/head_args.h"
#include "model/model.h"

namespace replayssm::cuda {

// What a draft head shares with the decoder that it belongs to. All of it outlives the head, whose
// calls come between the decoder's steps, on the same stream.
struct DraftHeadParts {
  const ModelConfig* config = nullptr;
  const ModelOptions* options = nullptr;
  const DeviceMtp* weights = nullptr;
  DeviceMatrix embedding;
  DeviceMatrix head;
  DeviceRope rope;
  int page_tokens = 16;
  StepSizes sizes;
  Gemm* gemm = nullptr;
  const DecoderActivations* activations = nullptr;
};

// Attention by one block for all of a row's positions, whatever their number: one layer, a few
// queries. Hidden states come from the host and go back there.
Result<std::unique_ptr<DraftHead>> make_cuda_draft_head(const DraftHeadParts& parts,
                                                        cudaStream_t stream);

}  // namespace replayssm::cuda
