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
  const float* weights;        // GDN: per record, in this warp's scratch
  float head_decay;            // GDN
  const float* channel_decay;  // KDA: [K]
  int records;
  bool has_state;
  int first_value;              // of the unit
  typename Layout::State* out;  // the unit's first value row; null: the state stays in the stage
};

// The corrections of a warp's value rows, in tiles of sixteen.
template <class Layout>
struct WarpCorrections {
  static constexpr int kTiles = (Layout::kRowsPerWarp + 15) / 16;
  CorrectionFragments<Layout> tiles[kTiles];
};
template <class Layout>
__device__ __forceinline__ WarpCorrections<Layout> load_warp_corrections(
    const FoldOperands<Layout>& fold, int warp) {
  WarpCorrections<Layout> d;
#pragma unroll
  for (int m = 0; m < WarpCorrections<Layout>::kTiles; ++m) {
    d.tiles[m] = load_corrections<Layout>(fold.staged, fold.weights, fold.records,
                                          fold.first_value + warp * Layout::kRowsPerWarp + 16 * m);
  }
  return d;
}

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

// Eight columns of a chunk of sixteen rows as A operands of two mma steps, in kParts bf16 parts: of
// step s columns 4 s and 4 s + 1 of row g and of row g + 8, then 4 s + 2 and 4 s + 3 of both.
template <int kParts>
struct ChunkOperand {
  uint32_t words[2][4][kParts];
};
__device__ __forceinline__ ChunkOperand<1> operand_of(const EightColumns<bf16>& upper,
                                                      const EightColumns<bf16>& lower) {
  const uint4 &u = upper.words, &l = lower.words;
  return {{{{u.x}, {l.x}, {u.y}, {l.y}}, {{u.z}, {l.z}, {u.w}, {l.w}}}};
}
__device__ __forceinline__ ChunkOperand<3> operand_of(const EightColumns<float>& upper,
                                                      const EightColumns<float>& lower) {
  ChunkOperand<3> operand;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 u = upper.pair(i), l = lower.pair(i);
    split(u.x, u.y, operand.words[i >> 1][(i & 1) * 2]);
    split(l.x, l.y, operand.words[i >> 1][(i & 1) * 2 + 1]);
  }
  return operand;
}

// Rows g and g + 8 of a state against eight columns of B, over all chunks. The order of additions
// is the same in all operations, and the same where rows read a pair of chunks (bf16) or the two
// steps of a chunk (fp32) in the other order: these have sums of their own, which are added at the
// end. So have the smaller parts, from the smallest up.
template <int kParts>
struct StateSums {
  float sums[kParts == 1 ? 1 : 2][2][4] = {};

  __device__ __forceinline__ void multiply(const ChunkOperand<kParts>& a, int chunk,
                                           const uint4& b) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const uint32_t(&x)[4][kParts] = a.words[step];
#pragma unroll
      for (int p = kParts - 1; p >= 0; --p) {
        ptx::mma(sums[p == 0 ? 0 : 1][kParts == 1 ? chunk & 1 : step], x[0][p], x[1][p], x[2][p],
                 x[3][p], step == 0 ? b.x : b.z, step == 0 ? b.y : b.w);
      }
    }
  }
  __device__ __forceinline__ float total(int i) const {
    const float large = sums[0][0][i] + sums[0][1][i];
    if constexpr (kParts == 1) return large;
    return large + (sums[kParts > 1 ? 1 : 0][0][i] + sums[kParts > 1 ? 1 : 0][1][i]);
  }
};

// Raw inputs as B operand for rows of the state as they are read where nothing is folded: columns
// 2 and 3 are for odd rows, which read chunks (bf16: as load_inputs has them) or the steps of a
// chunk (fp32) in the other order.
template <class Layout>
__device__ __forceinline__ InputFragments turned_inputs(const InputFragments& x) {
  if constexpr (Layout::kStateParts == 1) return x;
  const uint32_t swap = (ptx::lane() & 8) != 0 ? ~0u : 0u;
  InputFragments f;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const uint4& other = x.chunk[c ^ 1];
    f.chunk[c] = choose(swap, uint4{other.z, other.w, other.x, other.y}, x.chunk[c]);
  }
  return f;
}

// x as B operand. Folded states stay in natural order, because the columns of an accumulator are
// the same for all rows; their products are in columns 0 .. 3. `d` are the corrections to fold.
template <class Layout, bool kFold, bool kEvaluate>
__device__ __forceinline__ RowProducts product_mma(typename Layout::Stage& stage,
                                                   const InputFragments& x, int warp,
                                                   const FoldOperands<Layout>* fold,
                                                   const WarpCorrections<Layout>& d) {
  using State = typename Layout::State;
  constexpr int kTiles = WarpCorrections<Layout>::kTiles;
  constexpr bool kLower = Layout::kRowsPerWarp >= 16;
  const int lane = ptx::lane(), g = lane >> 2, t = lane & 3;
  State* const rows = stage.state + (warp * Layout::kRowsPerWarp + g) * kKeyDim + t * 8;
  StateSums<Layout::kStateParts> sums[kTiles];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int chunk = !kFold && Layout::kStateParts == 1 ? c ^ (g & 1) : c;
    EightColumns<State> upper[kTiles] = {}, lower[kTiles] = {};
    const auto load = [&](const State* from) {
      if constexpr (!kFold && Layout::kStateParts > 1) return load_turned(from, (g & 1) != 0);
      return load_columns(from);
    };
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      const State* const s = rows + 16 * m * kKeyDim + chunk * kChunkColumns;
      if (kFold && !fold->has_state) continue;
      upper[m] = load(s);
      if constexpr (kLower) lower[m] = load(s + 8 * kKeyDim);
    }
    if constexpr (kFold) {
      const auto keys = [&](int step, int i) {
        return load_keys<Layout>(fold->staged, fold->records, step, fold_column(c, i));
      };
      fold_chunk<Layout, kTiles>(d.tiles, fold->head_decay, fold->channel_decay, fold->records, c,
                                 keys, upper, lower);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        State* const to = rows + 16 * m * kKeyDim + chunk * kChunkColumns;
        store_columns(upper[m], to);
        if constexpr (kLower) store_columns(lower[m], to + 8 * kKeyDim);
      }
    }
    if constexpr (kEvaluate) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        sums[m].multiply(operand_of(upper[m], lower[m]), c, x.chunk[c]);
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
    for (int half = 0; half < Layout::kRowsPerWarp / 8; ++half) {
      float key = sums[half >> 1].total(2 * (half & 1));
      float query = sums[half >> 1].total(2 * (half & 1) + 1);
      if constexpr (Layout::kKda) {  // high + low part
        key += ptx::shuffle_xor(key, 1);
        query += ptx::shuffle_xor(query, 1);
      }
      key = ptx::shuffle(key, source);
      query = ptx::shuffle(query, source);
      if (row >> 3 == half) p = {key, query};
    }
  }
  return p;
}

__device__ __forceinline__ float dot4(const float4& a, const float4& b) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, a.x * b.x)));
}

// KDA with fp32 states: k and q are the lane's columns 4 lane .. 4 lane + 3 of the inputs.
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
      const float4 a = *reinterpret_cast<const float4*>(fold->channel_decay + column);
#pragma unroll
      for (int i = 0; i < 4; ++i) s[i] = scaled(s[i], a);
      fold_rows<Layout>(fold->staged, fold->records, fold->first_value + first_row + r, s);
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

// Folds the stage's records, as `fold` says, into this warp's rows of the stage's state.
template <class Layout>
__device__ __forceinline__ void fold_warp_rows(typename Layout::Stage& stage, int warp,
                                               const FoldOperands<Layout>& fold) {
  if constexpr (Layout::kMma) {
    product_mma<Layout, true, false>(stage, InputFragments{}, warp, &fold,
                                     load_warp_corrections<Layout>(fold, warp));
  } else {
    product_fma<Layout, true, false>(stage, float4{}, float4{}, warp, &fold);
  }
}

}  // namespace replayssm::cuda
