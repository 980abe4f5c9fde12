// Sixteen value rows of a bf16 state in the registers of a warp, as operands of the matrix units:
// loaded, stored and folded there. Windows and chunks of GDN share it.
#pragma once

#include "ops/cuda/state_product.cuh"

namespace replayssm::cuda {

// A row of 128 bf16 as this lane's part of the fragments of eight mma steps, chunks in their order.
// Two neighbouring rows read together would meet in one bank, so odd ones read each pair of chunks
// the other way round.
__device__ __forceinline__ InputFragments load_row(const bf16* row, bool odd) {
  const int t = ptx::lane() & 3;
  InputFragments f;
#pragma unroll
  for (int c = 0; c < kChunks; c += 2) {
    const bf16* const pair = row + c * kChunkColumns + t * 8;
    const uint4 first = *reinterpret_cast<const uint4*>(pair + (odd ? kChunkColumns : 0));
    const uint4 second = *reinterpret_cast<const uint4*>(pair + (odd ? 0 : kChunkColumns));
    f.chunk[c] = odd ? second : first;
    f.chunk[c + 1] = odd ? first : second;
  }
  return f;
}

// The same of row `row` of swizzled rows.
__device__ __forceinline__ InputFragments load_swizzled(const bf16* rows, int row) {
  const int t = ptx::lane() & 3;
  InputFragments f;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    f.chunk[c] =
        *reinterpret_cast<const uint4*>(rows + swizzled<kKeyDim>(row, c * kChunkColumns + t * 8));
  }
  return f;
}

// Rows g and g + 8 of A against column g of B over one chunk.
__device__ __forceinline__ void multiply_chunk(float (&c)[4], const uint4& upper,
                                               const uint4& lower, const uint4& b) {
  ptx::mma(c, upper.x, lower.x, upper.y, lower.y, b.x, b.y);
  ptx::mma(c, upper.z, lower.z, upper.w, lower.w, b.z, b.w);
}

// Rows g and g + 8 of sixteen: eight columns of each chunk a lane, from 32 chunk + 8 t on.
struct StateTile {
  InputFragments upper, lower;
};

// From or to sixteen rows in shared or global memory.
__device__ __forceinline__ StateTile load_tile(const bf16* rows) {
  const int g = ptx::lane() >> 2;
  const bf16* const row = rows + g * kKeyDim;
  return {load_row(row, (g & 1) != 0), load_row(row + 8 * kKeyDim, (g & 1) != 0)};
}

// See load_row.
__device__ __forceinline__ void store_row(const InputFragments& f, bf16* row, bool odd) {
  const int t = ptx::lane() & 3;
#pragma unroll
  for (int c = 0; c < kChunks; c += 2) {
    bf16* const pair = row + c * kChunkColumns + t * 8;
    const uint4 first = odd ? f.chunk[c + 1] : f.chunk[c];
    const uint4 second = odd ? f.chunk[c] : f.chunk[c + 1];
    *reinterpret_cast<uint4*>(pair + (odd ? kChunkColumns : 0)) = first;
    *reinterpret_cast<uint4*>(pair + (odd ? 0 : kChunkColumns)) = second;
  }
}
__device__ __forceinline__ void store_tile(const StateTile& state, bf16* rows) {
  const int g = ptx::lane() >> 2;
  bf16* const row = rows + g * kKeyDim;
  store_row(state.upper, row, (g & 1) != 0);
  store_row(state.lower, row + 8 * kKeyDim, (g & 1) != 0);
}

// The first `records` keys of `staged` as B operands of a fold, shared by kWarps warps: words
// [column tile][step][lane][half], where column tile 4 c + i has columns 32 c + 8 t + 2 i and the
// next of an accumulator's lane (fold_chunk). A barrier of theirs must follow.
template <class Layout, int kWarps = Layout::kWarps>
__device__ __forceinline__ void write_fold_keys(const StagedRecords<Layout>& staged, int records,
                                                typename Layout::Scratch& scratch, int warp) {
  const int lane = ptx::lane(), g = lane >> 2, t = lane & 3;
  for (int task = warp; task < Layout::kFoldSteps * 2 * kChunks; task += kWarps) {
    const int chunk = task % kChunks, eight = task / kChunks;
    uint32_t words[4];  // of pieces 0 .. 3 of the chunk: records 2 t and 2 t + 1, column g
    ptx::load_transposed(words,
                         staged.keys + swizzled<kKeyDim>(8 * eight + (lane & 7),
                                                         chunk * kChunkColumns + (lane >> 3) * 8));
    const int record = 8 * eight + 2 * t;
    const uint32_t live =
        (record < records ? 0xffffu : 0u) | (record + 1 < records ? 0xffff0000u : 0u);
    uint32_t* const to = scratch.fold_keys[chunk * 4 + (g >> 1)] + (eight >> 1) * 64 + (eight & 1);
#pragma unroll
    for (int piece = 0; piece < 4; ++piece) {
      to[((piece * 2 + (g & 1)) * 4 + t) * 2] = words[piece] & live;
    }
  }
}

// Folds `records` records, whose keys are in the scratch, into the tiles of value rows from
// `first_value` on. `a` is the block's decay, weight(j) what multiplies record j; called by all
// lanes.
template <class Layout, int kTiles, class Weight>
__device__ __forceinline__ void fold_tiles(const StagedRecords<Layout>& staged, int records,
                                           int first_value, const typename Layout::Scratch& scratch,
                                           float a, Weight&& weight, StateTile (&state)[kTiles]) {
  constexpr int kSteps = Layout::kFoldSteps;
  const int lane = ptx::lane(), t = lane & 3;
  uint32_t high[kTiles][kSteps][4], low[kTiles][kSteps][4];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    float w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = weight(16 * step + 2 * t + (i >> 1) * 8 + (i & 1));
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      uint32_t d[4];
      ptx::load_transposed(
          d, staged.corrections +
                 swizzled<kValueDim>(16 * step + (lane >> 4) * 8 + (lane & 7),
                                     first_value + 16 * m + ((lane >> 3) & 1) * 8));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int j = 16 * step + 2 * t + (i >> 1) * 8;
        const float d0 = j < records ? w[i & 2] * low_half(d[i]) : 0.0f;
        const float d1 = j + 1 < records ? w[(i & 2) + 1] * high_half(d[i]) : 0.0f;
        uint32_t& h = high[m][step][i];
        h = ptx::pack_bf16(d0, d1);
        low[m][step][i] = ptx::pack_bf16(d0 - low_half(h), d1 - high_half(h));
      }
    }
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float sum[kTiles][4];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        const uint32_t u = reinterpret_cast<const uint32_t*>(&state[m].upper.chunk[c])[i];
        const uint32_t l = reinterpret_cast<const uint32_t*>(&state[m].lower.chunk[c])[i];
        sum[m][0] = a * low_half(u);
        sum[m][1] = a * high_half(u);
        sum[m][2] = a * low_half(l);
        sum[m][3] = a * high_half(l);
      }
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (step == 0 || 16 * step < records) {
          const uint2 k =
              *reinterpret_cast<const uint2*>(scratch.fold_keys[4 * c + i] + 64 * step + 2 * lane);
#pragma unroll
          for (int m = 0; m < kTiles; ++m) {
            const uint32_t(&h)[4] = high[m][step], (&r)[4] = low[m][step];
            ptx::mma(sum[m], h[0], h[1], h[2], h[3], k.x, k.y);
            ptx::mma(sum[m], r[0], r[1], r[2], r[3], k.x, k.y);
          }
        }
      }
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        reinterpret_cast<uint32_t*>(&state[m].upper.chunk[c])[i] =
            ptx::pack_bf16(sum[m][0], sum[m][1]);
        reinterpret_cast<uint32_t*>(&state[m].lower.chunk[c])[i] =
            ptx::pack_bf16(sum[m][2], sum[m][3]);
      }
    }
  }
}

}  // namespace replayssm::cuda
