// The order-preserving matrix product: reads stored weights once, widens them in registers.
#pragma once

#include <cstddef>

#include "model/weights.h"

namespace replayssm {

// out[m][n] = sum_k x[m][k] * weight[n][k] for m in [0, rows) and n in [first, last).
//   x       [rows, weight.cols] fp32, rows x_stride apart
//   out     [rows, weight.rows] fp32, rows out_stride apart; must not overlap x
// The bits of out[m][n] depend on row m of x, row n of the weight and the instruction set alone:
// not on `rows`, on m, or on how [first, last) was chosen.
void row_dot(const float* x, std::size_t x_stride, int rows, const WeightMatrix& weight, int first,
             int last, float* out, std::size_t out_stride);

}  // namespace replayssm
