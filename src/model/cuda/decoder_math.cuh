// The arithmetic between a decoder's products, a few neighbouring numbers at a time; whoever fuses
// it into something else gets the same bits. Values are rounded to bf16 where model/norm.h says.
#pragma once

#include <cstdint>

#include "ops/cuda/numbers.cuh"
#include "ops/shape.h"

namespace replayssm::cuda {

constexpr int kWarp = 32;
constexpr int kOctet = 8;  // bf16 numbers of 16 bytes

// Eight neighbouring bf16 numbers as fp32.
struct Octet {
  float x[kOctet];
};

__device__ __forceinline__ Octet load_octet(const bf16* from) {
  const uint4 u = *reinterpret_cast<const uint4*>(from);
  return {{low_half(u.x), high_half(u.x), low_half(u.y), high_half(u.y), low_half(u.z),
           high_half(u.z), low_half(u.w), high_half(u.w)}};
}
__device__ __forceinline__ void store_octet(bf16* to, const Octet& y) {
  *reinterpret_cast<uint4*>(to) = {ptx::pack_bf16(y.x[0], y.x[1]), ptx::pack_bf16(y.x[2], y.x[3]),
                                   ptx::pack_bf16(y.x[4], y.x[5]), ptx::pack_bf16(y.x[6], y.x[7])};
}
__device__ __forceinline__ float rounded(float x) { return widen(narrow<bf16>(x)); }
__device__ __forceinline__ float sum_of_squares(const Octet& v) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kOctet; ++i) sum = fmaf(v.x[i], v.x[i], sum);
  return sum;
}

// The same sum in every lane.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  return x;
}

// The same sum in every thread of a block of whole warps; between two calls the block must meet.
__device__ __forceinline__ float block_sum(float x) {
  __shared__ float sums[kWarp];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  x = warp_sum(x);
  if (lane == 0) sums[warp] = x;
  __syncthreads();
  return warp_sum(lane < warps ? sums[lane] : 0.0f);
}

// x times 1 / rms times scale.
__device__ __forceinline__ Octet scaled(Octet x, float inverse, const float* scale) {
#pragma unroll
  for (int i = 0; i < kOctet; ++i) x.x[i] = x.x[i] * inverse * scale[i];
  return x;
}

__device__ __forceinline__ Octet silu_product(Octet gate, const Octet& up) {
#pragma unroll
  for (int i = 0; i < kOctet; ++i) gate.x[i] = rounded(silu(gate.x[i])) * up.x[i];
  return gate;
}

__device__ __forceinline__ Octet sigmoid_product(Octet x, const Octet& gate) {
#pragma unroll
  for (int i = 0; i < kOctet; ++i) x.x[i] = x.x[i] * rounded(1.0f / (1.0f + expf(-gate.x[i])));
  return x;
}

// One value head by one warp: values 4 lane .. 4 lane + 3 of scale * norm(x) * silu(gate).
__device__ __forceinline__ uint2 gated_norm(const bf16* x, const bf16* gate, const float* scale,
                                            float eps) {
  const int at = 4 * (static_cast<int>(threadIdx.x) % kWarp);
  const uint2 u = *reinterpret_cast<const uint2*>(x + at);
  const uint2 z = *reinterpret_cast<const uint2*>(gate + at);
  const float values[4] = {low_half(u.x), high_half(u.x), low_half(u.y), high_half(u.y)};
  const float gates[4] = {low_half(z.x), high_half(z.x), low_half(z.y), high_half(z.y)};
  float squares = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) squares = fmaf(values[i], values[i], squares);
  const float inverse = 1.0f / sqrtf(warp_sum(squares) / kValueDim + eps);
  float y[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    y[i] = rounded(scale[at + i] * rounded(values[i] * inverse)) * silu(gates[i]);
  }
  return {ptx::pack_bf16(y[0], y[1]), ptx::pack_bf16(y[2], y[3])};
}

}  // namespace replayssm::cuda
