// What is particular to the configuration of models with Kimi Delta Attention.
#pragma once

#include <vector>

#include "core/result.h"
#include "model/config.h"
#include "model/json_file.h"

namespace replayssm {

// The heads of the linear layers: head_dim, num_heads and short_conv_kernel_size of
// linear_attn_config, each query, key and value head one of its own.
Status read_kda_heads(const Fields& fields, HeadShape& linear);

// The layers of a kimi_linear model of `count` layers: kda_layers and full_attn_layers of
// linear_attn_config, which count from 1. Refuses, by name, what is not built: multi-head latent
// attention, experts, and what later models of that type add.
Status read_kimi_layers(const Fields& fields, int count, std::vector<LayerKind>& layers);

}  // namespace replayssm
