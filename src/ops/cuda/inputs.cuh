// The current token's query and key as matrix fragments, their norms, and the products of the
// ring's keys with them.
//
// A lane of group g = lane / 4 and t = lane % 4 reads 16 bytes of a row at column
// 32 chunk + 8 t. The order of the contraction index in an mma is free as long as both operands use
// the same one, so these eight numbers serve as the fragments of two mma steps, and no shuffle or
// transposed load is needed. Rows of 256 bytes all start at the same bank: so that two rows read
// together do not meet in one bank, odd rows read chunk c ^ 1 when even rows read chunk c, and the
// operand has its columns twice, once in each chunk order:
//   columns 0, 1: k, q for even rows;  2, 3: k, q for odd rows;  4 .. 7: zero.
#pragma once

#include "ops/cuda/numbers.cuh"
#include "ops/cuda/stage_layout.h"
#include "ops/cuda/warp_sums.cuh"

namespace replayssm::cuda {

inline constexpr int kChunks = 4;  // of 32 columns
inline constexpr int kChunkColumns = 32;

// As B operand columns (or A operand rows 0 .. 7) of the eight mma steps over the key index.
struct InputFragments {
  uint4 chunk[kChunks];
};

// Raw q and k of a stage.
template <class Stage>
__device__ __forceinline__ InputFragments load_inputs(const Stage& stage) {
  const int g = ptx::lane() >> 2, t = ptx::lane() & 3;
  const bf16* const x = (g & 1) != 0 ? stage.q : stage.k;
  const int swap = (g >> 1) & 1;
  InputFragments f;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    f.chunk[c] = g < 4 ? *reinterpret_cast<const uint4*>(x + (c ^ swap) * kChunkColumns + t * 8)
                       : uint4{0, 0, 0, 0};
  }
  return f;
}

// Two mma steps: rows of A (only rows 0 .. 7 are in use) against the columns of B, one chunk.
__device__ __forceinline__ void multiply_rows(float (&c)[4], const uint4& a, const uint4& b) {
  ptx::mma(c, a.x, 0, a.y, 0, b.x, b.y);
  ptx::mma(c, a.z, 0, a.w, 0, b.z, b.w);
}

struct Norms {
  float key;        // 1 / |k|
  float query;      // query_scale / |q|
  float key_query;  // normalised k . q, scale included
};

// The products of two bf16 numbers are exact in fp32. Each chunk has its own accumulator and the
// chunks are added in ordinary fp32, because the matrix units do not round to nearest.
__device__ __forceinline__ Norms norms_of(const InputFragments& x, float query_scale) {
  float c[kChunks][4] = {};
#pragma unroll
  for (int i = 0; i < kChunks; ++i) multiply_rows(c[i], x.chunk[i], x.chunk[i]);
  const float even = (c[0][0] + c[1][0]) + (c[2][0] + c[3][0]);  // row g, column 2t
  const float odd = (c[0][1] + c[1][1]) + (c[2][1] + c[3][1]);   // row g, column 2t + 1
  Norms n;
  n.key = inverse_norm(ptx::shuffle(even, 0));                 // row 0 column 0: k.k
  n.query = inverse_norm(ptx::shuffle(odd, 4)) * query_scale;  // row 1 column 1: q.q
  n.key_query = ptx::shuffle(odd, 0) * n.key * n.query;        // row 0 column 1: k.q
  return n;
}

// GDN. Products of the stage's record keys with raw k and q. Lane (g = 0, t) gets those with k,
// lane (g = 1, t) those with q: products[2 i] and [2 i + 1] belong to records 8 i + 2 t and
// 8 i + 2 t + 1. Dead records give whatever they hold, or zero; the caller selects them away.
template <int kRecords>
__device__ __forceinline__ void ring_products(const bf16* keys, const InputFragments& x,
                                              int records, float (&products)[kRecords / 4]) {
  const int g = ptx::lane() >> 2, t = ptx::lane() & 3;
#pragma unroll
  for (int i = 0; i < kRecords / 8; ++i) {
    products[2 * i] = products[2 * i + 1] = 0.0f;
    if (kRecords > 16 && 8 * i >= records)
      continue;  // of two tiles a branch costs more than it saves
    const bf16* const key = keys + (8 * i + g) * kKeyDim + t * 8;
    float c[kChunks][4] = {};
#pragma unroll
    for (int j = 0; j < kChunks; ++j) {
      const uint4 b = *reinterpret_cast<const uint4*>(key + (j ^ (g & 1)) * kChunkColumns);
      multiply_rows(c[j], x.chunk[j], b);
    }
    // Even records: column 2t of rows 0, 1. Odd records: column 2t + 1 of rows 2, 3, eight lanes
    // up. Even records met chunks in the order 0 1 2 3 and odd ones in the order 1 0 3 2; this sum
    // does not tell them apart.
    const float even = (c[0][0] + c[1][0]) + (c[2][0] + c[3][0]);
    const float odd = (c[0][1] + c[1][1]) + (c[2][1] + c[3][1]);
    products[2 * i] = even;
    products[2 * i + 1] = ptx::shuffle_down(odd, 8);
  }
}

}  // namespace replayssm::cuda
