// Products of a window's keys and queries with each other, with the records' keys and with the
// state. All are sums in the same order as those of a step of one token (inputs.cuh,
// state_product.cuh), so a token's result does not depend on the window that it was evaluated in.
#pragma once

#include "ops/cuda/state_product.cuh"
#include "ops/cuda/window_layout.h"

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
  int first_column;  // of the coefficients; even

  __device__ const bf16* key(int token) const { return staged.keys + (history + token) * kKeyDim; }
  __device__ const bf16* query(int token) const { return q + (first_row + token) * kKeyDim; }

  // Fragments of a record's key, or of a token's, which is record history + token; of a query.
  // `staged` begins with a multiple of eight where rows are swizzled.
  __device__ InputFragments record_fragments(int record) const {
    if constexpr (Layout::kTiled) return load_swizzled(staged.keys, record);
    return load_row(staged.keys + record * kKeyDim, ((ptx::lane() >> 2) & 1) != 0);
  }
  __device__ InputFragments query_fragments(int token) const {
    if constexpr (Layout::kTiled) return load_swizzled(q, first_row + token);
    return load_row(query(token), ((ptx::lane() >> 2) & 1) != 0);
  }
};

// Products of a tile of eight tokens' keys (rows 0 .. 7) and queries (8 .. 15) with eight columns,
// one of them this lane's. Rows of tokens that do not exist are whatever was in their place.
template <class Layout>
__device__ __forceinline__ void token_tile(const Segment<Layout>& segment, int tile,
                                           const InputFragments& b, float (&sums)[4]) {
  const int token = min(8 * tile + (ptx::lane() >> 2), segment.count - 1);
  const InputFragments k = segment.record_fragments(segment.history + token);
  const InputFragments q = segment.query_fragments(token);
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
  const int record_tiles = Layout::kKda ? 0 : (segment.history + segment.count + 7) / 8;
  const int columns = record_tiles + 2;  // the last two: the tokens' own keys, and queries
  const int end = first_tile + token_tiles * columns;
  const int behind = (warp - first_tile) & (kWarps - 1);
  for (int task = behind; task < end - first_tile; task += kWarps) {
    const int tile = task >= columns ? 1 : 0;  // at most 16 tokens
    const int column = task - tile * columns;
    const int token = min(8 * tile + g, segment.count - 1);
    const InputFragments b =
        column > record_tiles
            ? segment.query_fragments(token)
            : segment.record_fragments(column < record_tiles ? 8 * column + g
                                                             : segment.history + token);
    float sums[4];
    token_tile(segment, tile, b, sums);
    if (column < record_tiles) {
      if constexpr (!Layout::kKda) {
        float(*const gram)[Layout::kGramPitch] = scratch.gram;
        const int row = segment.first_token + 8 * tile + g, record = 8 * column + 2 * t;
        if (8 * tile + g < segment.count) {
          gram[row][record] = sums[0];
          gram[row][record + 1] = sums[1];
          gram[Layout::kTokens + row][record] = sums[2];
          gram[Layout::kTokens + row][record + 1] = sums[3];
        }
      }
    } else if (g >> 1 == t && 8 * tile + g < segment.count) {  // the diagonal
      const float with_key = (g & 1) != 0 ? sums[1] : sums[0];
      const float with_query = (g & 1) != 0 ? sums[3] : sums[2];
      const int at = segment.first_token + 8 * tile + g;
      if (column == record_tiles) {
        scratch.key_key[at] = with_key;
      } else {
        scratch.key_query[at] = with_key;
        scratch.query_query[at] = with_query;
      }
    }
  }
  return end;
}

// One value row's products with a token's key and query, for all tokens.
template <class Layout>
struct WindowSums {
  float key[Layout::kTokens];
  float query[Layout::kTokens];
};

// Takes the products of four tokens, from `first` on, from the warp's scratch to this lane's row.
template <class Layout>
__device__ __forceinline__ void take_products(const float* products, int first,
                                              WindowSums<Layout>& sums) {
  const int row = ptx::lane() % Layout::kRowsPerWarp;
  ptx::sync_warp();
#pragma unroll
  for (int i = 0; i < Layout::kTokenGroup; i += 2) {
    const float4 pair =
        *reinterpret_cast<const float4*>(products + (row * Layout::kTokenGroup + i) * 2);
    sums.key[first + i] = pair.x;
    sums.query[first + i] = pair.y;
    sums.key[first + i + 1] = pair.z;
    sums.query[first + i + 1] = pair.w;
  }
  ptx::sync_warp();
}

// bf16 states. Columns of the B operand: key and query of each token (GDN), or the high parts of
// both and the low parts (KDA). The state is read once for up to four tiles of columns.
template <class Layout>
__device__ __forceinline__ void window_products_mma(const typename Layout::Stage& stage,
                                                    const Segment<Layout>& segment,
                                                    const typename Layout::Exchange* exchange,
                                                    int warp, float* products,
                                                    WindowSums<Layout>& sums) {
  constexpr int kTiles = Layout::kRowsPerWarp / 16;
  constexpr int kTileTokens = Layout::kKda ? 2 : 4;
  constexpr int kColumnTiles =
      Layout::kTokens / kTileTokens < 4 ? Layout::kTokens / kTileTokens : 4;
  constexpr int kPassTokens = kColumnTiles * kTileTokens;
  const int g = ptx::lane() >> 2, t = ptx::lane() & 3;
  const bool odd = (g & 1) != 0;
#pragma unroll
  for (int pass = 0; pass < Layout::kTokens; pass += kPassTokens) {
    if (pass >= segment.count) break;
    float acc[kColumnTiles][kTiles][2][4] = {};
    InputFragments upper[kTiles], lower[kTiles];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      const bf16* const row = stage.state + (warp * Layout::kRowsPerWarp + 16 * m + g) * kKeyDim;
      upper[m] = load_row(row, odd);
      lower[m] = load_row(row + 8 * kKeyDim, odd);
    }
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const int first = pass + n * kTileTokens;
      if (first >= segment.count) break;
      const int token = min(first + (Layout::kKda ? g >> 2 : g >> 1), segment.count - 1);
      const bf16* const column = Layout::kKda ? exchange[token].decayed + (g & 3) * kKeyDim
                                 : odd        ? segment.query(token)
                                              : segment.key(token);
      const InputFragments b = load_row(column, odd);
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          multiply_chunk(acc[n][m][c & 1], upper[m].chunk[c], lower[m].chunk[c], b.chunk[c]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const int first = pass + n * kTileTokens;
      if (first >= segment.count) break;
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float key = acc[n][m][0][2 * half] + acc[n][m][1][2 * half];
          float query = acc[n][m][0][2 * half + 1] + acc[n][m][1][2 * half + 1];
          const int row = 16 * m + 8 * half + g;
          if constexpr (Layout::kKda) {  // high + low part
            key += ptx::shuffle_xor(key, 1);
            query += ptx::shuffle_xor(query, 1);
          }
          const int token = Layout::kKda ? (n & 1) * 2 + (t >> 1) : t;
          if (!Layout::kKda || (t & 1) == 0) {
            float* const to = products + (row * Layout::kTokenGroup + token) * 2;
            to[0] = key;
            to[1] = query;
          }
        }
      }
      // Four tokens are one tile (GDN) or two (KDA).
      if (!Layout::kKda || (n & 1) == 1 || first + kTileTokens >= segment.count) {
        take_products<Layout>(products, Layout::kKda ? first & ~3 : first, sums);
      }
    }
  }
}

// fp32 states: a lane has four columns of the warp's rows in registers, token after token.
template <class Layout>
__device__ __forceinline__ void window_products_fma(const typename Layout::Stage& stage,
                                                    const Segment<Layout>& segment,
                                                    const typename Layout::Exchange* exchange,
                                                    int warp, float* products,
                                                    WindowSums<Layout>& sums) {
  constexpr int kRows = Layout::kRowsPerWarp;
  const int lane = ptx::lane(), column = lane * 4;
  float4 s[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    s[r] = *reinterpret_cast<const float4*>(stage.state + (warp * kRows + r) * kKeyDim + column);
  }
#pragma unroll
  for (int first = 0; first < Layout::kTokens; first += Layout::kTokenGroup) {
    if (first >= segment.count) break;
    const int count = min(Layout::kTokenGroup, segment.count - first);
#pragma unroll 1
    for (int i = 0; i < count; i += 2) {
      // Two tokens, so that one's sums fill the waits of the other's.
      float partial[2][2 * kRows];  // [token][key, query][row]
#pragma unroll
      for (int two = 0; two < 2; ++two) {
        const int token = min(first + i + two, segment.count - 1);
        float4 k, q;
        if constexpr (Layout::kKda) {
          const float* const decayed = exchange[token].decayed_f32 + column;
          k = *reinterpret_cast<const float4*>(decayed);
          q = *reinterpret_cast<const float4*>(decayed + kKeyDim);
        } else {
          k = widen4(segment.key(token) + column);
          q = widen4(segment.query(token) + column);
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          partial[two][r] = dot4(s[r], k);
          partial[two][kRows + r] = dot4(s[r], q);
        }
      }
      sum_over_lanes(partial[0]);
      sum_over_lanes(partial[1]);
      static_assert(2 * kRows == 32);
      float* const to = products + (lane % kRows * Layout::kTokenGroup + i) * 2 + lane / kRows;
      to[0] = partial[0][0];
      to[2] = partial[1][0];
    }
    take_products<Layout>(products, first, sums);
  }
}

// Products of this lane's value row with every token of the segment; zero without a state.
template <class Layout>
__device__ __forceinline__ void window_products(const typename Layout::Stage& stage,
                                                const Segment<Layout>& segment,
                                                const typename Layout::Exchange* exchange, int warp,
                                                float* products, WindowSums<Layout>& sums) {
  if constexpr (Layout::kMma) {
    window_products_mma<Layout>(stage, segment, exchange, warp, products, sums);
  } else {
    window_products_fma<Layout>(stage, segment, exchange, warp, products, sums);
  }
}

}  // namespace replayssm::cuda
