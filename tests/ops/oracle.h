// An independent float64 recurrence, token by token, in the form decay, predict, correct, write,
// read (Yang et al., Gated Delta Networks, arXiv 2412.06464, equation 10). Shares no code with the
// operations.
#pragma once

#include <cmath>
#include <vector>

#include "ops/token_source.h"

namespace replayssm::tests {

// Outputs [count, HV, V] of a sequence from the zero state; `state` [HV][K][V] is left as it is
// after the last token.
inline std::vector<double> oracle(const Tokens& tokens, std::vector<double>* state = nullptr) {
  const HeadShape& shape = tokens.shape;
  std::vector<double> memory(shape.state_elements(), 0.0);
  std::vector<double> out;
  for (int i = 0; i < tokens.count; ++i) {
    const float* row = tokens.qkv.data() + static_cast<std::size_t>(i) * shape.channels();
    for (int h = 0; h < shape.value_heads; ++h) {
      const float* q = row + h / shape.group() * kKeyDim;
      const float* k = q + shape.key_heads * kKeyDim;
      const float* v = row + 2 * shape.key_heads * kKeyDim + h * kValueDim;
      double qq = 1e-6, kk = 1e-6;
      for (int c = 0; c < kKeyDim; ++c) {
        qq += static_cast<double>(q[c]) * q[c];
        kk += static_cast<double>(k[c]) * k[c];
      }
      double* s = memory.data() + static_cast<std::size_t>(h) * kKeyDim * kValueDim;
      const int width = shape.gate_width();
      const float* g =
          tokens.gate.data() + (static_cast<std::size_t>(i) * shape.value_heads + h) * width;
      std::vector<double> predicted(kValueDim, 0.0), read(kValueDim, 0.0);
      for (int c = 0; c < kKeyDim; ++c) {
        const double a = std::exp(static_cast<double>(g[width == 1 ? 0 : c]));
        for (int x = 0; x < kValueDim; ++x) {
          s[c * kValueDim + x] *= a;
          predicted[x] += s[c * kValueDim + x] * (k[c] / std::sqrt(kk));
        }
      }
      const double beta = tokens.beta[static_cast<std::size_t>(i) * shape.value_heads + h];
      for (int c = 0; c < kKeyDim; ++c) {
        for (int x = 0; x < kValueDim; ++x) {
          s[c * kValueDim + x] += k[c] / std::sqrt(kk) * beta * (v[x] - predicted[x]);
          read[x] += s[c * kValueDim + x] * q[c] / std::sqrt(qq) / std::sqrt(double{kKeyDim});
        }
      }
      out.insert(out.end(), read.begin(), read.end());
    }
  }
  if (state != nullptr) *state = memory;
  return out;
}

// |x - y| / |y| over all elements (L2).
template <class X, class Y>
double relative_error(const X& x, const Y& y) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    difference += (x[i] - y[i]) * static_cast<double>(x[i] - y[i]);
    size += static_cast<double>(y[i]) * y[i];
  }
  return std::sqrt(difference / (size == 0 ? 1 : size));
}

}  // namespace replayssm::tests
