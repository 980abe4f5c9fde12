// Qwen3-Next stores the projections of a linear layer fused, interleaved by key head; everything
// else is as in the Qwen3.5 family.
#pragma once

#include <string>

#include "core/result.h"
#include "model/tensor_reader.h"
#include "model/weights.h"

namespace replayssm {

// Reads in_proj_qkvz and in_proj_ba below `prefix` and puts their rows into the order of the other
// families: out.qkv, out.z, out.b and out.a, as copies. With r value heads to a key head, the
// stored rows are, for each key head in turn,
//   in_proj_qkvz  q [K] | k [K] | v of its r value heads [r V] | z of its r value heads [r V]
//   in_proj_ba    b of its r value heads [r] | a of its r value heads [r]
// Source: the model's code in Hugging Face transformers, modeling_qwen3_next.
Status read_fused_projections(TensorReader& reader, const std::string& prefix,
                              const ModelConfig& config, GdnWeights& out);

}  // namespace replayssm
