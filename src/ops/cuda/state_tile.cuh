// Sixteen value rows of a bf16 state in the registers of a warp, as operands of the matrix units:
// loaded, stored and folded there. Windows and chunks share it.
#pragma once

#include "ops/cuda/state_product.cuh"

namespace replayssm::cuda {

// A lane's part of two neighbouring chunks of a row of bf16, which begins at `x`. Two neighbouring
// rows read together would meet in one bank, so odd ones read the chunks the other way round.
__device__ __forceinline__ void load_chunk_pair(const bf16* x, bool odd, uint4& even_chunk,
                                                uint4& odd_chunk) {
  const int early = odd ? kChunkColumns : 0, late = kChunkColumns - early;
  const uint32_t swap = odd ? ~0u : 0u;
  const uint4 first = *reinterpret_cast<const uint4*>(x + early);
  const uint4 second = *reinterpret_cast<const uint4*>(x + late);
  even_chunk = choose(swap, second, first);
  odd_chunk = choose(swap, first, second);
}

// A row of 128 bf16 as this lane's part of the fragments of eight mma steps, chunks in their order.
__device__ __forceinline__ InputFragments load_row(const bf16* row, bool odd) {
  const bf16* const x = row + (ptx::lane() & 3) * 8;
  InputFragments f;
#pragma unroll
  for (int c = 0; c < kChunks; c += 2) {
    load_chunk_pair(x + c * kChunkColumns, odd, f.chunk[c], f.chunk[c + 1]);
  }
  return f;
}

// A lane's parts of the chunks of row `row` of swizzled rows of keys or queries.
struct SwizzledRow {
  const bf16 *even, *odd;  // chunks 0 and 1: two chunks further is no part of the pattern

  SwizzledRow() = default;
  __device__ __forceinline__ SwizzledRow(const bf16* rows, int row) {
    static_assert(kChunkColumns == 32 && kChunks == 4);
    const int at = swizzled<kKeyDim>(row, (ptx::lane() & 3) * 8);
    even = rows + at;
    odd = rows + (at ^ kChunkColumns);
  }
  __device__ __forceinline__ uint4 chunk(int c) const {
    return *reinterpret_cast<const uint4*>(((c & 1) != 0 ? odd : even) +
                                           (c >> 1) * 2 * kChunkColumns);
  }
};
// The same as load_row() of row `row` of swizzled rows.
__device__ __forceinline__ InputFragments load_swizzled(const bf16* rows, int row) {
  const SwizzledRow from(rows, row);
  InputFragments f;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) f.chunk[c] = from.chunk(c);
  return f;
}

// Rows g and g + 8 of A against column g of B over one chunk.
__device__ __forceinline__ void multiply_chunk(float (&c)[4], const uint4& upper,
                                               const uint4& lower, const uint4& b) {
  ptx::mma(c, upper.x, lower.x, upper.y, lower.y, b.x, b.y);
  ptx::mma(c, upper.z, lower.z, upper.w, lower.w, b.z, b.w);
}

// Rows g and g + 8 of sixteen, eight columns of each chunk a lane, from 32 chunk + 8 t on, as A
// operands of two mma steps a chunk: of step s columns 4 s and 4 s + 1 of row g and of row g + 8,
// then 4 s + 2 and 4 s + 3 of both.
struct StateTile {
  uint32_t words[kChunks][2][4];

  // Pair `i` < 4 of the eight columns, of row g or g + 8.
  __device__ __forceinline__ uint32_t& pair(int chunk, int i, bool lower) {
    return words[chunk][i >> 1][(i & 1) * 2 + (lower ? 1 : 0)];
  }
  __device__ __forceinline__ ChunkOperand<1> operand(int chunk) const {
    const uint32_t(&x)[4] = words[chunk][0], (&y)[4] = words[chunk][1];
    return {{{{x[0]}, {x[1]}, {x[2]}, {x[3]}}, {{y[0]}, {y[1]}, {y[2]}, {y[3]}}}};
  }
  __device__ __forceinline__ void multiply(float (&c)[4], int chunk, const uint4& b) const {
    const uint32_t(&x)[4] = words[chunk][0], (&y)[4] = words[chunk][1];
    ptx::mma(c, x[0], x[1], x[2], x[3], b.x, b.y);
    ptx::mma(c, y[0], y[1], y[2], y[3], b.z, b.w);
  }
};

// From sixteen rows in shared or global memory.
__device__ __forceinline__ StateTile load_tile(const bf16* rows) {
  const int g = ptx::lane() >> 2;
  StateTile tile;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const InputFragments f = load_row(rows + (g + 8 * half) * kKeyDim, (g & 1) != 0);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const uint32_t pairs[4] = {f.chunk[c].x, f.chunk[c].y, f.chunk[c].z, f.chunk[c].w};
#pragma unroll
      for (int i = 0; i < 4; ++i) tile.pair(c, i, half == 1) = pairs[i];
    }
  }
  return tile;
}
// To sixteen rows in global memory.
__device__ __forceinline__ void store_tile(StateTile& tile, bf16* rows) {
  bf16* const x = rows + (ptx::lane() >> 2) * kKeyDim + (ptx::lane() & 3) * 8;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      *reinterpret_cast<uint4*>(x + 8 * half * kKeyDim + c * kChunkColumns) =
          uint4{tile.pair(c, 0, half == 1), tile.pair(c, 1, half == 1), tile.pair(c, 2, half == 1),
                tile.pair(c, 3, half == 1)};
    }
  }
}

// The first `records` keys of `staged` as B operands of a fold, shared by kWarps warps: words
// [column tile][step][lane][half], where column tile 4 c + i has columns 32 c + 8 t + 2 i and the
// next of an accumulator's lane (fold_chunk). A barrier of theirs must follow.
template <class Layout, int kWarps = Layout::kWarps>
__device__ __forceinline__ void write_fold_keys(const StagedRecords<Layout>& staged, int records,
                                                typename Layout::Scratch& scratch, int warp) {
  const int lane = ptx::lane(), g = lane >> 2, t = lane & 3;
#pragma unroll(Layout::kTiled ? 4 : 1)
  for (int task = warp; task < Layout::kFoldSteps * 2 * kChunks; task += kWarps) {
    const int chunk = task % kChunks, eight = task / kChunks;
    uint32_t words[4];  // of pieces 0 .. 3 of the chunk: records 2 t and 2 t + 1, column g
    const int row = 8 * eight + (lane & 7), piece_at = chunk * kChunkColumns + (lane >> 3) * 8;
    ptx::load_transposed(words, staged.keys + (Layout::kSwizzled ? swizzled<kKeyDim>(row, piece_at)
                                                                 : row * kKeyDim + piece_at));
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
      const int record = 16 * step + (lane >> 4) * 8 + (lane & 7);
      const int value = first_value + 16 * m + ((lane >> 3) & 1) * 8;
      ptx::load_transposed(d,
                           staged.corrections + (Layout::kTiled ? swizzled<kValueDim>(record, value)
                                                                : record * kValueDim + value));
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
  // Chunk `c` of the columns, whose words are in the place of chunk `at`.
  const auto fold_words = [&](int at, int c) __attribute__((always_inline)) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float sum[kTiles][4];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        const uint32_t u = state[m].pair(at, i, false), l = state[m].pair(at, i, true);
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
        state[m].pair(at, i, false) = ptx::pack_bf16(sum[m][0], sum[m][1]);
        state[m].pair(at, i, true) = ptx::pack_bf16(sum[m][2], sum[m][3]);
      }
    }
  };
  if constexpr (Layout::kTiled) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) fold_words(c, c);
  } else if constexpr (Layout::kStagesState) {
    // A quarter of the code, and few registers: after each turn the chunks move on by one place.
#pragma unroll 1
    for (int c = 0; c < kChunks; ++c) {
      fold_words(0, c);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        StateTile moved;
#pragma unroll
        for (int i = 0; i < kChunks; ++i) {
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            moved.words[i][j >> 2][j & 3] = state[m].words[(i + 1) % kChunks][j >> 2][j & 3];
          }
        }
        state[m] = moved;
      }
    }
  } else {
    // No moves here, where the compiler then has some for the products: measured better from eight
    // tokens on. Not unrolled, since products of all chunks at once want too many registers.
#pragma unroll 1
    for (int c = 0; c < kChunks; ++c) {
      switch (c) {
        case 0:
          fold_words(0, 0);
          break;
        case 1:
          fold_words(1, 1);
          break;
        case 2:
          fold_words(2, 2);
          break;
        default:
          fold_words(3, 3);
      }
    }
  }
}

}  // namespace replayssm::cuda
