// Conversions and the scalar functions of the recurrence: one function each for decay, norm, gate
// and beta, which every kernel calls.
#pragma once

#include <cstdint>

#include "core/bfloat16.h"
#include "ops/cuda/ptx.cuh"

namespace replayssm::cuda {

__device__ __forceinline__ float low_half(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_half(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}
__device__ __forceinline__ float widen(bf16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}
__device__ __forceinline__ float widen(float x) { return x; }

template <class T>
__device__ __forceinline__ T narrow(float x);
template <>
__device__ __forceinline__ bf16 narrow<bf16>(float x) {
  return bf16{static_cast<uint16_t>(ptx::pack_bf16(x, 0.0f) & 0xffffu)};
}
template <>
__device__ __forceinline__ float narrow<float>(float x) {
  return x;
}

// Two numbers as sums of kParts bf16 numbers, the largest first: pairs, `x0` in the lower halves.
// Three hold every fp32 number exactly, but for the extremes of the exponent; two are right to
// 2^-17.
template <int kParts>
__device__ __forceinline__ void split(float x0, float x1, uint32_t (&parts)[kParts]) {
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    parts[p] = ptx::pack_bf16(x0, x1);
    x0 -= low_half(parts[p]);
    x1 -= high_half(parts[p]);
  }
}

// `a` where the mask is all ones, `b` where it is zero: one instruction, and no branch.
__device__ __forceinline__ uint32_t choose(uint32_t mask, uint32_t a, uint32_t b) {
  return (a & mask) | (b & ~mask);
}
__device__ __forceinline__ float choose(uint32_t mask, float a, float b) {
  return __uint_as_float(choose(mask, __float_as_uint(a), __float_as_uint(b)));
}
__device__ __forceinline__ uint4 choose(uint32_t mask, const uint4& a, const uint4& b) {
  return {choose(mask, a.x, b.x), choose(mask, a.y, b.y), choose(mask, a.z, b.z),
          choose(mask, a.w, b.w)};
}

// Element of row `row` and column `column` of rows whose pieces of eight elements are exchanged, in
// a way that repeats every eight rows. Where rows all begin at the same bank, these still lie in
// different ones: of bf16 rows eight rows' pieces of one column, and four neighbouring pieces of
// two rows; of fp32 rows the pieces of four neighbouring rows, and of every other one of eight.
template <int kColumns, class T = bf16>
__device__ __forceinline__ int swizzled(int row, int column) {
  return row * kColumns + (column ^ (row & 1) << (sizeof(T) == 2 ? 5 : 4) ^ (row & 6) << 2);
}

// The decay of one token from its log gate <= 0. Over several tokens decays are multiplied, newest
// first. A memory of hundreds of tokens multiplies hundreds of decays near 1, and there expf's last
// unit is too coarse: 1.3e-6 after 600 tokens was measured. Near 1, five terms of the series are
// right to 5e-9 and the last addition rounds once.
__device__ __forceinline__ float decay(float log_gate) {
  const float x = log_gate;
  float series = fmaf(x, 1.0f / 120, 1.0f / 24);
  series = fmaf(x, series, 1.0f / 6);
  series = fmaf(x, series, 0.5f);
  series = fmaf(x, series, 1.0f);
  return x > -0.125f ? fmaf(x, series, 1.0f) : expf(x);
}

// 1 / |x| of an L2 norm, epsilon under the root and added to the sum of squares.
__device__ __forceinline__ float inverse_norm(float sum_of_squares) {
  return rsqrtf(sum_of_squares + 1e-6f);
}

// g = -exp(a_log) softplus(a + dt_bias); with lower_bound < 0 instead
// g = lower_bound sigmoid(exp(a_log) (a + dt_bias)).
__device__ __forceinline__ float log_gate(float a, float a_log, float dt_bias, float lower_bound) {
  const float x = a + dt_bias;
  if (lower_bound < 0.0f) {
    // The rate multiplies x in an exponent of up to 88: expf's last unit there would be 1e-5.
    const float rate = static_cast<float>(exp(static_cast<double>(a_log)));
    return lower_bound / (1.0f + expf(-rate * x));
  }
  return -expf(a_log) * (x > 20.0f ? x : log1pf(expf(x)));
}
// x sigmoid(x). The fast exponential and division are each right to a few units in the last place
// of a term beside 1; where they underflow, so does the result.
__device__ __forceinline__ float silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }
__device__ __forceinline__ float beta_of(float b) { return 1.0f / (1.0f + expf(-b)); }

}  // namespace replayssm::cuda
