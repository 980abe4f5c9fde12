// Rows of the embedding as activations.
#pragma once

#include "core/dtype.h"
#include "core/strong_id.h"
#include "model/weights.h"

namespace replayssm {

// out [embedding.cols] = row `token` of the embedding as fp32, rounded to `type`.
// Precondition: 0 <= token < embedding.rows.
void embed(const WeightMatrix& embedding, TokenId token, DType type, float* out);

}  // namespace replayssm
