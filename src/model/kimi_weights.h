// The tensors of a Kimi Delta Attention layer.
#pragma once

#include <string>

#include "core/result.h"
#include "model/tensor_reader.h"
#include "model/weights.h"

namespace replayssm {

// Reads, below `prefix`, the names of published Kimi Linear checkpoints: q_proj, k_proj, v_proj,
// each with a q_conv1d, k_conv1d, v_conv1d; f_a_proj, f_b_proj; b_proj; g_a_proj, g_b_proj; A_log
// [1, 1, H, 1]; dt_bias [H K]; o_norm; o_proj.
Status read_kda(TensorReader& reader, const std::string& prefix, const ModelConfig& config,
                KdaWeights& out);

}  // namespace replayssm
