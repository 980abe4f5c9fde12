// RMS norms, and the pointwise steps of a decoder block between two matrix products. Every result
// row depends on its own input rows alone. `type` says where a model of that activation type
// stores: with bf16 the values are rounded exactly there (models of this family multiply by the
// norm's scale before the cast), with f32 never.
#pragma once

#include <cstddef>

#include "core/dtype.h"

namespace replayssm {

// Rows of equal width, `stride` elements apart.
struct ConstRows {
  const float* data = nullptr;
  std::size_t stride = 0;
};
struct Rows {
  float* data = nullptr;
  std::size_t stride = 0;
};

// out = x * rsqrt(mean(x^2) + eps) * scale, rounded once at the end. `out` may equal x.
//   scale [width]; for zero-centred norms the caller has added the 1.
void rms_norm(ConstRows x, int rows, int width, const float* scale, double eps, DType type,
              Rows out);

// out = scale * (x * rsqrt(mean(x^2) + eps)) * silu(gate): the norm comes before the gate.
// bf16 rounds x, the normalised value, its product with the scale, and the result. May be in place.
void gated_rms_norm(ConstRows x, ConstRows gate, int rows, int width, const float* scale,
                    double eps, DType type, Rows out);

// out = scale * (x * rsqrt(mean(x^2) + eps)) * sigmoid(gate); bf16 rounds x and the result. May be
// in place.
void sigmoid_gated_rms_norm(ConstRows x, ConstRows gate, int rows, int width, const float* scale,
                            double eps, DType type, Rows out);

// out = silu(gate) * up; bf16 rounds silu(gate) and the product. out may equal gate or up.
void silu_product(const float* gate, const float* up, std::size_t count, DType type, float* out);

// x = x * sigmoid(gate) over rows; bf16 rounds the sigmoid and the product.
void sigmoid_product(Rows x, ConstRows gate, int rows, int width, DType type);

// x = x + y; bf16 rounds the sum.
void add_rows(float* x, const float* y, std::size_t count, DType type);

// Rounds values to the nearest bf16 values.
void round_to_bf16(float* values, std::size_t count);

}  // namespace replayssm
