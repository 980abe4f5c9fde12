// S k and S q for one warp's value rows, S being the stage's state: as read, or folded on the way,
// in place, and written out. Each lane ends up with the two sums of value row lane % kRowsPerWarp.
#pragma once

#include "ops/cuda/fold_operands.cuh"

namespace replayssm::cuda {

struct RowProducts {
  float key = 0;
  float query = 0;
};

// What folding needs beyond the stage.
template <class Layout>
struct FoldOperands {
  StagedRecords<Layout> staged;
  const float* weights;        // GDN: per record, this warp's scratch
  float head_decay;            // GDN
  const float* channel_decay;  // KDA: [K]
  int records;
  bool has_state;
  int first_value;              // of the unit
  typename Layout::State* out;  // the unit's first value row; null: the state stays in the stage
};

// Starts writing this warp's rows of the stage's state to the unit's place in global memory.
// Whoever releases the stage waits for it.
template <class Layout>
__device__ __forceinline__ void store_rows(const typename Layout::Stage& stage, int warp,
                                           typename Layout::State* out) {
  constexpr int kElements = Layout::kRowsPerWarp * kKeyDim;
  ptx::fence_before_bulk();
  ptx::sync_warp();
  ptx::store_block(out + warp * kElements, stage.state + warp * kElements,
                   kElements * sizeof(typename Layout::State));
}

// KDA, bf16 states: the decayed inputs as B operand. Columns 0 .. 3: k high, q high, k low, q low;
// 4 .. 7 the same in the chunk order of odd rows.
template <class Layout>
__device__ __forceinline__ InputFragments load_decayed(const typename Layout::Exchange& exchange) {
  const int g = ptx::lane() >> 2, t = ptx::lane() & 3;
  InputFragments f;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    f.chunk[c] = *reinterpret_cast<const uint4*>(exchange.decayed + (g & 3) * kKeyDim +
                                                 (c ^ (g >> 2)) * kChunkColumns + t * 8);
  }
  return f;
}

// bf16 states: x as B operand. Folded states stay in natural chunk order, because the columns of an
// accumulator are the same for all rows; their products are in columns 0 .. 3. Each row adds chunks
// 0 and 2 in one accumulator, 1 and 3 in the other, and the two at the end: the same bits in either
// order.
template <class Layout, bool kFold, bool kEvaluate>
__device__ __forceinline__ RowProducts product_mma(typename Layout::Stage& stage,
                                                   const InputFragments& x, int warp,
                                                   const FoldOperands<Layout>* fold) {
  constexpr int kTiles = Layout::kRowsPerWarp / 16;
  const int lane = ptx::lane(), g = lane >> 2, t = lane & 3;
  const int first_row = warp * Layout::kRowsPerWarp;
  float acc[2][kTiles][4] = {};
  [[maybe_unused]] CorrectionFragments<Layout> d[kTiles];
  if constexpr (kFold) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      d[m] = load_corrections<Layout>(fold->staged, fold->weights, fold->records,
                                      fold->first_value + first_row + 16 * m);
    }
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int chunk = kFold ? c : c ^ (g & 1);
    uint4 upper[kTiles], lower[kTiles];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      const bf16* const s =
          stage.state + (first_row + 16 * m + g) * kKeyDim + chunk * kChunkColumns + t * 8;
      if (kFold && !fold->has_state) {
        upper[m] = lower[m] = uint4{0, 0, 0, 0};
      } else {
        upper[m] = *reinterpret_cast<const uint4*>(s);
        lower[m] = *reinterpret_cast<const uint4*>(s + 8 * kKeyDim);
      }
    }
    if constexpr (kFold) {
      fold_chunk<Layout, kTiles>(fold->staged, d, fold->head_decay, fold->channel_decay,
                                 fold->records, c, upper, lower);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        bf16* const to =
            stage.state + (first_row + 16 * m + g) * kKeyDim + chunk * kChunkColumns + t * 8;
        *reinterpret_cast<uint4*>(to) = upper[m];
        *reinterpret_cast<uint4*>(to + 8 * kKeyDim) = lower[m];
      }
    }
    if constexpr (kEvaluate) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        float(&a)[4] = acc[c & 1][m];
        ptx::mma(a, upper[m].x, lower[m].x, upper[m].y, lower[m].y, x.chunk[c].x, x.chunk[c].y);
        ptx::mma(a, upper[m].z, lower[m].z, upper[m].w, lower[m].w, x.chunk[c].z, x.chunk[c].w);
      }
    }
  }
  if constexpr (kFold) {
    if (fold->out != nullptr) store_rows<Layout>(stage, warp, fold->out);
  }
  RowProducts p;
  if constexpr (kEvaluate) {
    const int row = lane % Layout::kRowsPerWarp;
    const int odd_at = kFold ? 0 : (Layout::kKda ? 2 : 1);
    const int source = (row & 7) * 4 + (row & 1) * odd_at;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float key = acc[0][m][2 * half] + acc[1][m][2 * half];
        float query = acc[0][m][2 * half + 1] + acc[1][m][2 * half + 1];
        if constexpr (Layout::kKda) {  // high + low part
          key += ptx::shuffle_xor(key, 1);
          query += ptx::shuffle_xor(query, 1);
        }
        key = ptx::shuffle(key, source);
        query = ptx::shuffle(query, source);
        if (row >> 3 == 2 * m + half) p = {key, query};
      }
    }
  }
  return p;
}

__device__ __forceinline__ float dot4(const float4& a, const float4& b) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, a.x * b.x)));
}

// fp32 states: k and q are the lane's columns 4 lane .. 4 lane + 3 of the inputs.
template <class Layout, bool kFold, bool kEvaluate>
__device__ __forceinline__ RowProducts product_fma(typename Layout::Stage& stage, const float4& k,
                                                   const float4& q, int warp,
                                                   const FoldOperands<Layout>* fold) {
  constexpr int kRows = Layout::kRowsPerWarp;
  const int column = ptx::lane() * 4;
  const int first_row = warp * kRows;
  float sums[2 * kRows];  // [k, q][row]
#pragma unroll
  for (int r = 0; r < kRows; r += 4) {
    float4 s[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* const from = stage.state + (first_row + r + i) * kKeyDim + column;
      s[i] =
          kFold && !fold->has_state ? float4{0, 0, 0, 0} : *reinterpret_cast<const float4*>(from);
    }
    if constexpr (kFold) {
      const float h = fold->head_decay;
      const float4 a = Layout::kKda ? *reinterpret_cast<const float4*>(fold->channel_decay + column)
                                    : float4{h, h, h, h};
#pragma unroll
      for (int i = 0; i < 4; ++i) s[i] = scaled(s[i], a);
      fold_rows<Layout>(fold->staged, fold->weights, fold->records,
                        fold->first_value + first_row + r, s);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        *reinterpret_cast<float4*>(stage.state + (first_row + r + i) * kKeyDim + column) = s[i];
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[r + i] = kEvaluate ? dot4(s[i], k) : 0.0f;
      sums[kRows + r + i] = kEvaluate ? dot4(s[i], q) : 0.0f;
    }
  }
  if constexpr (kFold) {
    if (fold->out != nullptr) store_rows<Layout>(stage, warp, fold->out);
  }
  RowProducts p;
  if constexpr (kEvaluate) {
    sum_over_lanes(sums);
    const int row = ptx::lane() % kRows;
    p.key = ptx::shuffle(sums[0], row);
    p.query = ptx::shuffle(sums[0], kRows + row);
  }
  return p;
}

}  // namespace replayssm::cuda
