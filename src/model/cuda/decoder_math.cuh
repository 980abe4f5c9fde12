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

__device__ __forceinline__ Octet octet_of(const uint4& u) {
  return {{low_half(u.x), high_half(u.x), low_half(u.y), high_half(u.y), low_half(u.z),
           high_half(u.z), low_half(u.w), high_half(u.w)}};
}
__device__ __forceinline__ uint4 packed(const Octet& y) {
  return {ptx::pack_bf16(y.x[0], y.x[1]), ptx::pack_bf16(y.x[2], y.x[3]),
          ptx::pack_bf16(y.x[4], y.x[5]), ptx::pack_bf16(y.x[6], y.x[7])};
}
__device__ __forceinline__ Octet load_octet(const bf16* from) {
  return octet_of(*reinterpret_cast<const uint4*>(from));
}
__device__ __forceinline__ void store_octet(bf16* to, const Octet& y) {
  *reinterpret_cast<uint4*>(to) = packed(y);
}
__device__ __forceinline__ Octet load_octet_f32(const float* from) {
  const float4 a = reinterpret_cast<const float4*>(from)[0];
  const float4 b = reinterpret_cast<const float4*>(from)[1];
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
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

// out = scale * x / rms(x), a row by the whole block.
__device__ __forceinline__ void rms_norm_row(const bf16* x, const float* scale, float eps,
                                             int width, bf16* out) {
  const int first = static_cast<int>(threadIdx.x) * kOctet;
  const int step = static_cast<int>(blockDim.x) * kOctet;
  float squares = 0;
  for (int i = first; i < width; i += step) squares += sum_of_squares(load_octet(x + i));
  const float mean = block_sum(squares) / static_cast<float>(width);
  const float inverse = 1.0f / sqrtf(mean + eps);
  for (int i = first; i < width; i += step) {
    store_octet(out + i, scaled(load_octet(x + i), inverse, scale + i));
  }
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

// The lanes of this lane's half of the warp.
__device__ __forceinline__ unsigned half_warp_mask() {
  return (ptx::lane() & (kWarp / 2)) != 0 ? 0xffff0000u : 0x0000ffffu;
}

// Eight values of a value head, the others in the other lanes of half a warp: scale * norm(x) *
// silu(gate).
__device__ __forceinline__ Octet gated_norm(const Octet& x, const Octet& gate, const float* scale,
                                            float eps) {
  static_assert(kValueDim == kWarp / 2 * kOctet);
  float squares = sum_of_squares(x);
#pragma unroll
  for (int distance = kWarp / 4; distance > 0; distance /= 2) {
    squares += __shfl_xor_sync(half_warp_mask(), squares, distance);
  }
  const float inverse = 1.0f / sqrtf(squares / kValueDim + eps);
  Octet y;
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    y.x[i] = rounded(scale[i] * rounded(x.x[i] * inverse)) * silu(gate.x[i]);
  }
  return y;
}

// The mixing steps of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
__device__ __forceinline__ uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace replayssm::cuda
