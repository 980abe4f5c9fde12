// What quantization_config of config.json says about how linear weights are stored.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace replayssm {

class Fields;

// Which weights are quantised is decided by what the files hold; this says what they may hold.
struct Quantisation {
  // Weights may be e4m3 codes W.weight with one multiplier for each 128 x 128 block beside them,
  // W.weight_scale_inv (float8.h).
  bool float8_blocks = false;
  // modules_to_not_convert, as the file spells them.
  std::vector<std::string> excluded;

  // Whether the list names `module` ("model.layers.0.mlp.gate_proj"): as itself, as something
  // inside a named module, or by the end of its name. Prefixes are left out of account, because
  // lists spell them differently: model., language_model., model.language_model.
  bool excludes(std::string_view module) const;
};

// Reads the quantization_config of one level of the configuration; absent: leaves `out` alone.
// Accepts the fp8 method with e4m3 weights, blocks of 128 x 128 and activations that are quantised,
// if at all, on the fly; refuses everything else by name.
Status read_quantisation(const Fields& fields, Quantisation& out);

}  // namespace replayssm
