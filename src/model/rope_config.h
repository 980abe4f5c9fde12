// Reads the rotary embedding's parameters out of a model's configuration.
#pragma once

#include "core/result.h"
#include "model/config.h"
#include "model/json_file.h"

namespace replayssm {

// `text` is the object that describes the language model. Accepts the nested form
// (rope_parameters) and the flat one (rope_theta, partial_rotary_factor, rope_scaling), types
// "default", "mrope" (equal to it for text) and "yarn". `rotary_factor`: what a missing
// partial_rotary_factor means.
//
// `max_positions` is max_position_embeddings; YaRN extends the original context from it.
Result<RopeConfig> read_rope(const Fields& text, int head_dim, int max_positions,
                             double rotary_factor);

}  // namespace replayssm
