// Products of a window's keys and queries with each other, with the records' keys and with the
// state. All are sums in the same order as those of a step of one token (inputs.cuh,
// state_product.cuh), so a token's result does not depend on the window that it was evaluated in.
#pragma once

#include <type_traits>

#include "ops/cuda/float_tile.cuh"
#include "ops/cuda/window_layout.h"

namespace replayssm::cuda {

// Tokens of a window that are evaluated from one checkpoint: those up to the end of a block of
// positions, or those after it.
template <class Layout>
struct Segment {
  StagedRecords<Layout> staged;  // the ring's records and then the tokens' own
  const bf16* q;                 // [row][K]
  const bf16* v;                 // [row][unit rows]
  const float* beta;             // [row], or its projections
  int first_row;                 // of q, v and beta: the first token's
  int first_token;               // of the window
  int history;                   // records before the first token
  int count;
  int first_column;  // of coefficients and factors; a multiple of four

  // Row `token` of the keys or queries, where rows are not swizzled.
  __device__ const bf16* key(int token) const { return staged.keys + (history + token) * kKeyDim; }
  __device__ const bf16* query(int token) const { return q + (first_row + token) * kKeyDim; }

  // Fragments of row `row` of the staged keys, in which token i's is history + i, or of the
  // queries. `staged` begins with a multiple of eight where rows are swizzled.
  __device__ InputFragments fragments(const bf16* rows, int row) const {
    if constexpr (Layout::kSwizzled) return load_swizzled(rows, row);
    return load_row(rows + row * kKeyDim, ((ptx::lane() >> 2) & 1) != 0);
  }
  // Of the key of a token for columns of a B operand, or of its query.
  __device__ InputFragments fragments_of(bool is_query, int token) const {
    return fragments(is_query ? q : staged.keys, (is_query ? first_row : history) + token);
  }
};

// Products of a tile of eight tokens' keys (rows 0 .. 7) and queries (8 .. 15) with eight columns,
// one of them this lane's. Rows of tokens that do not exist are whatever was in their place.
template <class Layout>
__device__ __forceinline__ void token_tile(const Segment<Layout>& segment, int tile,
                                           const InputFragments& b, float (&sums)[4]) {
  const int token = min(8 * tile + (ptx::lane() >> 2), segment.count - 1);
  const InputFragments k = segment.fragments(segment.staged.keys, segment.history + token);
  const InputFragments q = segment.fragments(segment.q, segment.first_row + token);
  float c[kChunks][4] = {};
#pragma unroll
  for (int i = 0; i < kChunks; ++i) multiply_chunk(c[i], k.chunk[i], q.chunk[i], b.chunk[i]);
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = (c[0][i] + c[1][i]) + (c[2][i] + c[3][i]);
}

// The tiles of a segment's products: of each token with itself, and for GDN with the records and
// the tokens before it. Tiles are numbered from `first_tile` on over the window's segments, and
// dealt to kWarps warps; returns the number after the last. A barrier of theirs must follow.
template <class Layout, int kWarps = Layout::kWarps>
__device__ __forceinline__ int window_gram(const Segment<Layout>& segment, int first_tile,
                                           typename Layout::Scratch& scratch, int warp) {
  const int g = ptx::lane() >> 2, t = ptx::lane() & 3;
  const int token_tiles = (segment.count + 7) / 8;
  // Of eight records, the tokens' own keys among them (GDN), or of those keys alone.
  const int key_columns = Layout::kKda ? 1 : (segment.history + segment.count + 7) / 8;
  const int columns = key_columns + 1;  // the last: the tokens' own queries
  const int end = first_tile + token_tiles * columns;
  const int behind = (warp - first_tile) & (kWarps - 1);
#pragma unroll 1
  for (int task = behind; task < end - first_tile; task += kWarps) {
    const int tile = task >= columns ? 1 : 0;  // at most 16 tokens
    const int column = task - tile * columns;
    const int token = 8 * tile + g, existing = min(token, segment.count - 1);
    const bool of_queries = column == key_columns;
    const int row = of_queries     ? segment.first_row + existing
                    : Layout::kKda ? segment.history + existing
                                   : 8 * column + g;
    const InputFragments b = segment.fragments(of_queries ? segment.q : segment.staged.keys, row);
    float sums[4];
    token_tile(segment, tile, b, sums);
    if (token != existing) continue;
    const int at = segment.first_token + token;
    // Which of this lane's two columns is the token itself.
    int own = g - 2 * t;
    if constexpr (!Layout::kKda) {
      if (!of_queries) {
        const int record = 8 * column + 2 * t;
        float(*const gram)[Layout::kGramPitch] = scratch.gram;
        *reinterpret_cast<float2*>(&gram[at][record]) = {sums[0], sums[1]};
        *reinterpret_cast<float2*>(&gram[Layout::kTokens + at][record]) = {sums[2], sums[3]};
        own = segment.history + token - record;
      }
    }
    if (own != 0 && own != 1) continue;
    const float with_key = own != 0 ? sums[1] : sums[0];
    if (of_queries) {
      scratch.key_query[at] = with_key;
      scratch.query_query[at] = own != 0 ? sums[3] : sums[2];
    } else {
      scratch.key_key[at] = with_key;
    }
  }
  return end;
}

// A warp's value rows of the state in its registers: as tiles, or for KDA with fp32 states four
// columns of every row a lane. GDN with fp32 states keeps none of it there (kProductsAhead).
template <class Layout>
struct StateTiles {
  static constexpr int kTiles = Layout::kRowsPerWarp / 16;
  StateTile tiles[kTiles];
};
template <class Layout>
struct StateColumns {
  float4 rows[Layout::kRowsPerWarp];
};
template <class Layout>
using StateRows = std::conditional_t<Layout::kMma, StateTiles<Layout>, StateColumns<Layout>>;

// From the unit's rows in shared memory; zero without a state.
template <class Layout>
__device__ __forceinline__ StateRows<Layout> load_state(const typename Layout::State* unit_rows,
                                                        int warp, bool has_state) {
  StateRows<Layout> state{};
  if (!has_state) return state;
  const typename Layout::State* const rows = unit_rows + warp * Layout::kRowsPerWarp * kKeyDim;
  if constexpr (Layout::kMma) {
#pragma unroll
    for (int m = 0; m < StateTiles<Layout>::kTiles; ++m) {
      state.tiles[m] = load_tile(rows + 16 * m * kKeyDim);
    }
  } else {
#pragma unroll
    for (int r = 0; r < Layout::kRowsPerWarp; ++r) {
      state.rows[r] = *reinterpret_cast<const float4*>(rows + r * kKeyDim + ptx::lane() * 4);
    }
  }
  return state;
}

// Sums of a value row with the keys and with the queries of a group of tokens: of 32 rows a warp,
// row `lane`, both; of sixteen, row lane % 16, lanes 0 .. 15 the keys and 16 .. 31 the queries.
template <class Layout>
struct GroupSums {
  static constexpr int kSets = Layout::kRowsPerWarp / 16;
  float token[kSets][Layout::kTokenGroup];
};

// Of a group, from where products are left for the lanes of their rows.
template <class Layout>
__device__ __forceinline__ GroupSums<Layout> load_sums(const float* products) {
  GroupSums<Layout> sums;
#pragma unroll
  for (int set = 0; set < GroupSums<Layout>::kSets; ++set) {
    const float4 x = *reinterpret_cast<const float4*>(
        products + (set * Layout::kRowsPerWarp + ptx::lane()) * Layout::kTokenGroup);
    sums.token[set][0] = x.x;
    sums.token[set][1] = x.y;
    sums.token[set][2] = x.z;
    sums.token[set][3] = x.w;
  }
  return sums;
}

// The state's products with the tokens first, first + 1, .. of a group; what belongs to tokens that
// do not exist is any number. `exchange` is that of the segment's first token.
//
// bf16 states. Columns of the B operand: key and query of each of four tokens (GDN), or the high
// parts of both and the low parts for two of them (KDA).
template <class Layout>
__device__ __forceinline__ GroupSums<Layout> group_products(
    const StateTiles<Layout>& state, const Segment<Layout>& segment, int first,
    const typename Layout::Exchange* exchange, float* products) {
  constexpr int kTileTokens = Layout::kKda ? 2 : 4, kTiles = StateTiles<Layout>::kTiles;
  constexpr int kRows = Layout::kRowsPerWarp;
  const int g = ptx::lane() >> 2, t = ptx::lane() & 3, last = segment.count - 1;
  const bool odd = (g & 1) != 0;
  static_assert(Layout::kTokenGroup == 4);
  float* const to = products + g * 4 + (Layout::kKda ? t >> 1 : t);
#pragma unroll 1
  for (int n = 0; n < Layout::kTokenGroup && first + n <= last; n += kTileTokens) {
    const int token = min(first + n + (Layout::kKda ? g >> 2 : g >> 1), last);
    InputFragments b;
    if constexpr (Layout::kKda) {
      b = load_row(exchange[token].decayed + (g & 3) * kKeyDim, odd);
    } else {
      b = segment.fragments_of(odd, token);
    }
    float acc[kTiles][2][4] = {};
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) state.tiles[m].multiply(acc[m][c & 1], c, b.chunk[c]);
    }
#pragma unroll
    for (int half = 0; half < 2 * kTiles; ++half) {
      const int m = half >> 1, at_row = 2 * (half & 1);
      float key = acc[m][0][at_row] + acc[m][1][at_row];
      float query = acc[m][0][at_row + 1] + acc[m][1][at_row + 1];
      float* const at = to + n + 8 * half * 4;
      if constexpr (Layout::kKda) {  // high + low part
        key += ptx::shuffle_xor(key, 1);
        query += ptx::shuffle_xor(query, 1);
        if ((t & 1) != 0) continue;
      }
      at[0] = key;
      at[kRows * 4] = query;
    }
  }
  ptx::sync_warp();
  const GroupSums<Layout> sums = load_sums<Layout>(products);
  ptx::sync_warp();
  return sums;
}

// GDN with fp32 states in the stage. All products of a segment in one pass over the state, in whose
// course every number of it is taken apart once; groups of four tokens lie one behind the other.
// One warp.
template <class Layout>
__device__ __forceinline__ void segment_products(const typename Layout::Stage& stage,
                                                 const Segment<Layout>& segment,
                                                 typename Layout::Scratch& scratch, int warp) {
  constexpr int kGroups = Layout::kTokens / Layout::kTokenGroup;
  constexpr int kRows = Layout::kRowsPerWarp, kGroupSums = 2 * kRows * Layout::kTokenGroup;
  static_assert(kRows == 16);
  const int g = ptx::lane() >> 2, t = ptx::lane() & 3;
  const bool odd = (g & 1) != 0;
  // Columns of the B operand: key and query of each of four tokens.
  const bf16* const row = (odd ? segment.query(0) : segment.key(0)) + t * 8;
  const float* const upper = stage.state + (warp * kRows + g) * kKeyDim + t * 8;
  StateSums<Layout::kStateParts> sums[kGroups];
#pragma unroll 1
  for (int c = 0; c < kChunks; c += 2) {
    ChunkOperand<Layout::kStateParts> a[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float* const from = upper + (c + i) * kChunkColumns;
      a[i] = operand_of(load_columns(from), load_columns(from + 8 * kKeyDim));
    }
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      if (n * Layout::kTokenGroup >= segment.count) continue;
      const int token = min(n * Layout::kTokenGroup + (g >> 1), segment.count - 1);
      uint4 b[2];
      load_chunk_pair(row + token * kKeyDim + c * kChunkColumns, odd, b[0], b[1]);
      sums[n].multiply(a[0], c, b[0]);
      sums[n].multiply(a[1], c + 1, b[1]);
    }
  }
#pragma unroll
  for (int n = 0; n < kGroups; ++n) {
    if (n * Layout::kTokenGroup >= segment.count) continue;
    float* const to = scratch.segment_products[warp] + n * kGroupSums + g * 4 + t;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      to[8 * half * 4] = sums[n].total(2 * half);
      to[(8 * half + kRows) * 4] = sums[n].total(2 * half + 1);
    }
  }
  ptx::sync_warp();
}

// GDN with fp32 states that are not staged: where a pass over a warp's value rows finds them, and
// what it folds.
struct StatePass {
  const float* from;  // the warp's first row; null: the state is zero
  float* to;          // where it leaves the folded rows, null: nowhere
  int records;        // that are folded, whose keys are in the scratch as B operands
  float decay;        // over the folded block
};

// All products of a segment with the state in one pass over the warp's rows, in whose course every
// number is taken apart once. `folded` are the records of the pass's fold. One warp.
template <class Layout, bool kFold>
__device__ __forceinline__ void pass_over_state(const StatePass& pass,
                                                const StagedRecords<Layout>& folded,
                                                const Segment<Layout>& segment,
                                                typename Layout::Scratch& scratch, int warp) {
  constexpr int kGroups = Layout::kTokens / Layout::kTokenGroup, kParts = Layout::kStateParts;
  constexpr int kRows = Layout::kRowsPerWarp, kGroupSums = 2 * kRows * Layout::kTokenGroup;
  const int lane = ptx::lane(), g = lane >> 2, t = lane & 3;
  const bool odd = (g & 1) != 0;
  // Columns of the B operand: key and query of each of four tokens.
  const bf16* const row = (odd ? segment.query(0) : segment.key(0)) + t * 8;
  const float* from = pass.from + g * kKeyDim + t * 8;
  [[maybe_unused]] float* to = pass.to + g * kKeyDim + t * 8;
  EightColumns<float> next[2] = {};  // of rows g and g + 8
  const auto load_next = [&](int at) {
    if (pass.from == nullptr) return;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      next[half] = load_global_columns(from + half * 8 * kKeyDim + at);
  };
  load_next(0);
#pragma unroll 1
  for (int first_row = 0; first_row < kRows; first_row += 16) {
    [[maybe_unused]] CorrectionFragments<Layout> d[1];
    if constexpr (kFold) {
      d[0] = load_corrections<Layout>(folded, scratch.weights[0], pass.records,
                                      warp * kRows + first_row);
    }
    StateSums<kParts> sums[kGroups];
#pragma unroll 1
    for (int c = 0; c < kChunks; ++c) {
      EightColumns<float> upper[1] = {next[0]}, lower[1] = {next[1]};
      if (c + 1 < kChunks) {
        load_next((c + 1) * kChunkColumns);
      } else if (first_row + 16 < kRows) {
        load_next(16 * kKeyDim);
      }
      if constexpr (kFold) {
        fold_columns<Layout>(d, scratch, pass.records, pass.decay, c, upper, lower);
        if (pass.to != nullptr) {
          store_global_columns(upper[0], to + c * kChunkColumns);
          store_global_columns(lower[0], to + 8 * kKeyDim + c * kChunkColumns);
        }
      }
      const ChunkOperand<kParts> a = operand_of(upper[0], lower[0]);
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
        if (n * Layout::kTokenGroup >= segment.count) continue;
        const int token = min(n * Layout::kTokenGroup + (g >> 1), segment.count - 1);
        sums[n].multiply(
            a, c, *reinterpret_cast<const uint4*>(row + token * kKeyDim + c * kChunkColumns));
      }
    }
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      if (n * Layout::kTokenGroup >= segment.count) continue;
      float* const products =
          scratch.segment_products[warp] + n * kGroupSums + (first_row + g) * 4 + t;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        products[8 * half * 4] = sums[n].total(2 * half);
        products[(8 * half + kRows) * 4] = sums[n].total(2 * half + 1);
      }
    }
    from += 16 * kKeyDim;
    to += 16 * kKeyDim;
  }
  ptx::sync_warp();
}

// KDA with fp32 states, token after token.
template <class Layout>
__device__ __forceinline__ GroupSums<Layout> group_products(
    const StateColumns<Layout>& state, const Segment<Layout>& segment, int first,
    const typename Layout::Exchange* exchange, float*) {
  static_assert(Layout::kRowsPerWarp == 16);
  const int column = ptx::lane() * 4;
  GroupSums<Layout> sums{};
#pragma unroll 1
  for (int i = 0; i < Layout::kTokenGroup && first + i < segment.count; ++i) {
    const float* const decayed = exchange[first + i].decayed_f32 + column;
    const float4 k = *reinterpret_cast<const float4*>(decayed);
    const float4 q = *reinterpret_cast<const float4*>(decayed + kKeyDim);
    float partial[32];  // [key, query][row]
#pragma unroll
    for (int r = 0; r < 16; ++r) {
      partial[r] = dot4(state.rows[r], k);
      partial[16 + r] = dot4(state.rows[r], q);
    }
    sum_over_lanes(partial);
#pragma unroll
    for (int j = 0; j < Layout::kTokenGroup; ++j) {
      sums.token[0][j] = j == i ? partial[0] : sums.token[0][j];
    }
  }
  return sums;
}

}  // namespace replayssm::cuda
