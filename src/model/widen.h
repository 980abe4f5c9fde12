// Stored elements as fp32.
#pragma once

#include "model/weights.h"

namespace replayssm {

// Writes the block of `rows` x `cols` elements that starts at (first_row, first_col), rows `cols`
// apart. Exact for every stored type.
void widen_block(const WeightMatrix& weight, int first_row, int rows, int first_col, int cols,
                 float* out);

}  // namespace replayssm
