// Matrix products by oneDNN on the calling thread alone: the caller splits the work, so that there
// is one set of threads and the result does not depend on its size.
#pragma once

#include <cstddef>

#include "core/bfloat16.h"
#include "model/weights.h"

namespace replayssm {

// Whether oneDNN on this machine multiplies bf16 in hardware (AVX512_BF16 or AMX).
bool onednn_has_bf16_instructions();

// Weight rows and columns that are widened at a time: 192 x 512 fp32 (384 KiB) stay in a core's
// second-level cache.
inline constexpr int kWidenedRows = 192;
inline constexpr int kWidenedCols = 512;
inline constexpr std::size_t kWidenedElements = std::size_t{kWidenedRows} * kWidenedCols;

// out[m][n] = sum_k x[m][k] * weight[n][k] for m in [0, rows) and n in [first, last), in fp32:
// weights are widened tile by tile into `scratch` (kWidenedElements floats, untouched for fp32
// weights) and multiplied by sgemm. Strides in elements. Deterministic for given arguments, but the
// bits of an element may depend on `rows`. False: oneDNN refused, out is undefined.
bool onednn_f32_product(const float* x, std::size_t x_stride, int rows, const WeightMatrix& weight,
                        int first, int last, float* out, std::size_t out_stride, float* scratch);

// The same for inputs and weights in bf16, neither widened; sums in fp32. False: this machine or
// this oneDNN cannot, out is undefined.
bool onednn_bf16_product(const bf16* x, std::size_t x_stride, int rows, const WeightMatrix& weight,
                         int first, int last, float* out, std::size_t out_stride);

}  // namespace replayssm
