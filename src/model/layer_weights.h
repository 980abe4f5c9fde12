// The tensors of one decoder layer.
#pragma once

#include <string>

#include "core/result.h"
#include "model/config.h"
#include "model/tensor_reader.h"
#include "model/weights.h"

namespace replayssm {

// What turns a stored norm weight into a scale: 1 for zero-centred norms.
float norm_offset(const ModelConfig& config);

// Reads layer `prefix` ("model.layers.3.") as `config` describes it. Errors as TensorReader's.
Status read_layer(TensorReader& reader, const std::string& prefix, LayerKind kind,
                  const ModelConfig& config, LayerWeights& out);

}  // namespace replayssm
