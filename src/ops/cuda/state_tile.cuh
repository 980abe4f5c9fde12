// GDN with bf16 states, in chunks: sixteen value rows of the state in the registers of a warp,
// where they are folded, multiplied with the tokens' keys and queries, and the tokens solved one
// after the other, all in the layout of the matrix units' accumulators. The sums are those of a
// step of one token, in its order.
#pragma once

#include "ops/cuda/segment.cuh"

namespace replayssm::cuda {

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

// Folds `records` records, whose keys are in the scratch, into the tile of value rows from
// `first_value` on. `a` is the block's decay, weight(j) what multiplies record j; called by all
// lanes.
template <class Layout, class Weight>
__device__ __forceinline__ void fold_tile(const StagedRecords<Layout>& staged, int records,
                                          int first_value, const typename Layout::Scratch& scratch,
                                          float a, Weight&& weight, StateTile& state) {
  constexpr int kSteps = Layout::kFoldSteps;
  const int lane = ptx::lane(), t = lane & 3;
  uint32_t high[kSteps][4], low[kSteps][4];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    uint32_t d[4];
    ptx::load_transposed(
        d, staged.corrections + swizzled<kValueDim>(16 * step + (lane >> 4) * 8 + (lane & 7),
                                                    first_value + ((lane >> 3) & 1) * 8));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int j = 16 * step + 2 * t + (i >> 1) * 8;
      const float w0 = weight(j), w1 = weight(j + 1);
      const float d0 = j < records ? w0 * low_half(d[i]) : 0.0f;
      const float d1 = j + 1 < records ? w1 * high_half(d[i]) : 0.0f;
      high[step][i] = ptx::pack_bf16(d0, d1);
      low[step][i] = ptx::pack_bf16(d0 - low_half(high[step][i]), d1 - high_half(high[step][i]));
    }
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t& u = reinterpret_cast<uint32_t*>(&state.upper.chunk[c])[i];
      uint32_t& l = reinterpret_cast<uint32_t*>(&state.lower.chunk[c])[i];
      float sum[4] = {a * low_half(u), a * high_half(u), a * low_half(l), a * high_half(l)};
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (step == 0 || 16 * step < records) {
          const uint2 k =
              *reinterpret_cast<const uint2*>(scratch.fold_keys[4 * c + i] + 64 * step + 2 * lane);
          const uint32_t(&h)[4] = high[step], (&r)[4] = low[step];
          ptx::mma(sum, h[0], h[1], h[2], h[3], k.x, k.y);
          ptx::mma(sum, r[0], r[1], r[2], r[3], k.x, k.y);
        }
      }
      u = ptx::pack_bf16(sum[0], sum[1]);
      l = ptx::pack_bf16(sum[2], sum[3]);
    }
  }
}

// Sums of rows g and g + 8 of the tile, of tokens t, t + 4, .. of a segment.
template <class Layout>
struct TileSums {
  float key[Layout::kTokens / 4][2];
  float query[Layout::kTokens / 4][2];
};

// Stores two bf16: of a row, and of the row eight further, whose place differs in that bit alone.
__device__ __forceinline__ void store_pair(bf16* rows, int at, uint32_t pair) {
  rows[at] = bf16{static_cast<uint16_t>(pair & 0xffffu)};
  rows[at ^ 8] = bf16{static_cast<uint16_t>(pair >> 16)};
}

// Where a lane's outputs go: of the segment's token t and row g.
struct TileOutput {
  char* first;
  int64_t four_tokens;  // bytes
  bool f32;

  __device__ __forceinline__ TileOutput(const StepArgs& args, const Unit& unit, int token,
                                        int first_row)
      : f32(args.out_f32 != 0) {
    const int size = f32 ? 4 : 2, row = args.value_heads * kValueDim * size;
    first = static_cast<char*>(unit.out) + static_cast<int64_t>(token + (ptx::lane() & 3)) * row +
            (first_row + (ptx::lane() >> 2)) * size;
    four_tokens = 4 * static_cast<int64_t>(row);
  }

  __device__ __forceinline__ void store(int slot, float upper, float lower) const {
    char* const to = first + slot * four_tokens;
    if (f32) {
      reinterpret_cast<float*>(to)[0] = upper;
      reinterpret_cast<float*>(to)[8] = lower;
    } else {
      store_pair(reinterpret_cast<bf16*>(to), 0, ptx::pack_bf16(upper, lower));
    }
  }
};

// Tokens of a segment in fours, evaluated in one straight line: those that do not exist are
// computed from the last token's inputs, and not stored.
template <class Layout, class Body>
__device__ __forceinline__ void with_slots(const Segment<Layout>& segment, Body&& body) {
  constexpr int kSlots = Layout::kTokens / 4;
  if constexpr (kSlots > 1) {
    if (segment.count <= Layout::kTokens / 2) {
      body.template operator()<kSlots / 2>();
      return;
    }
  }
  body.template operator()<kSlots>();
}

// The tile's products with the tokens of kUsed fours. Columns of the B operand: key and query of
// four tokens.
template <int kUsed, class Layout>
__device__ __forceinline__ void tile_products(const StateTile& state,
                                              const Segment<Layout>& segment,
                                              TileSums<Layout>& sums) {
  const int g = ptx::lane() >> 2;
  const bool query = (g & 1) != 0;
  const bf16* const rows = query ? segment.q : segment.staged.keys;
  const int first = query ? segment.first_row : segment.history;
  float c[kUsed][2][4] = {};
#pragma unroll
  for (int n = 0; n < kUsed; ++n) {
    const InputFragments b = load_swizzled(rows, first + min(4 * n + (g >> 1), segment.count - 1));
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      multiply_chunk(c[n][i & 1], state.upper.chunk[i], state.lower.chunk[i], b.chunk[i]);
    }
  }
#pragma unroll
  for (int n = 0; n < kUsed; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sums.key[n][half] = c[n][0][2 * half] + c[n][1][2 * half];
      sums.query[n][half] = c[n][0][2 * half + 1] + c[n][1][2 * half + 1];
    }
  }
}

// sums += coefficient * d.
__device__ __forceinline__ void add_corrections(const float2& coefficient, const float (&d)[2],
                                                float (&key)[2], float (&query)[2]) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    key[row] = fmaf(coefficient.x, d[row], key[row]);
    query[row] = fmaf(coefficient.y, d[row], query[row]);
  }
}

// A segment's history, then its tokens one after the other: a token's d goes from its lane to the
// other three of its rows, which have later tokens. The tokens' d become records of the block, and
// keep(token, row of the unit, d of it and of the row eight further as a pair) is called by a
// token's lanes. One warp.
template <int kUsed, class Layout, class Keep>
__device__ __forceinline__ void solve_tile(const Segment<Layout>& segment, int first_value,
                                           const typename Layout::Scratch& scratch, int warp,
                                           const TileOutput& output, TileSums<Layout>& sums,
                                           Keep&& keep) {
  constexpr int kPitch = Layout::kCoefficientPitch;
  const int lane = ptx::lane(), t = lane & 3;
  const int value = warp * 16 + (lane >> 2);  // and value + 8
  const int last = segment.count - 1;
  bf16* const corrections = segment.staged.corrections;
  const int column = first_value + value;
  const typename Layout::TokenFactors* const factors = scratch.factors + segment.first_token;
  const float* const coefficients = scratch.coefficients + 2 * (segment.first_column + t);
  const auto coefficient = [&](const float* record, int slot) {
    return *reinterpret_cast<const float2*>(record + 8 * slot);
  };
  float beta[kUsed], key_query[kUsed], v[kUsed][2];
#pragma unroll
  for (int n = 0; n < kUsed; ++n) {
    const int token = min(4 * n + t, last);
    const typename Layout::TokenFactors f = factors[token];
    const int at = swizzled<Layout::kRows>(segment.first_row + token, value);
    beta[n] = f.beta;
    key_query[n] = f.key_query;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      v[n][row] = widen(segment.v[at ^ (8 * row)]);
      sums.key[n][row] = sums.key[n][row] * f.key + 0.0f;
      sums.query[n][row] = sums.query[n][row] * f.query + 0.0f;
    }
  }
  // A record of the history, whose d of row 0 lies at `at`, `further` rows down.
  const auto add_record = [&](int record, int at, int further) {
    float d[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      d[row] = widen(corrections[(at ^ (8 * row)) + further * kValueDim]);
    }
#pragma unroll
    for (int n = 0; n < kUsed; ++n) {
      add_corrections(coefficient(coefficients + record * kPitch, n), d, sums.key[n],
                      sums.query[n]);
    }
  };
  int record = 0;
#pragma unroll 1
  for (; record + 4 <= segment.history; record += 4) {
    const int first = swizzled<kValueDim>(record, column);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      add_record(record + i, first ^ swizzled<0>(i, 0), i);
    }
  }
#pragma unroll 1
  for (; record < segment.history; ++record) {
    add_record(record, swizzled<kValueDim>(record, column), 0);
  }
  const float* const own = coefficients + segment.history * kPitch;
#pragma unroll
  for (int n = 0; n < kUsed; ++n) {
    const auto solved = [&](int row) { return beta[n] * (v[n][row] - sums.key[n][row]); };
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float* const from_token = own + (4 * n + r) * kPitch;
      const uint32_t pair = ptx::shuffle(ptx::pack_bf16(solved(0), solved(1)), (lane & ~3) | r);
      float d[2] = {low_half(pair), high_half(pair)};
#pragma unroll
      for (int m = n + 1; m < kUsed; ++m) {
        add_corrections(coefficient(from_token, m), d, sums.key[m], sums.query[m]);
      }
      if (r == 3) continue;
      // Of the same four, only later tokens: the sums of the others are done.
      d[0] = t > r ? d[0] : 0.0f;
      d[1] = t > r ? d[1] : 0.0f;
      add_corrections(coefficient(from_token, n), d, sums.key[n], sums.query[n]);
    }
    const int token = 4 * n + t;
    if (token <= last) {
      const float upper = solved(0), lower = solved(1);
      const uint32_t pair = ptx::pack_bf16(upper, lower);
      store_pair(corrections, swizzled<kValueDim>(segment.history + token, column), pair);
      keep(token, value, pair);
      output.store(n, fmaf(key_query[n], upper, sums.query[n][0]),
                   fmaf(key_query[n], lower, sums.query[n][1]));
    }
  }
  ptx::sync_warp();  // a fold reads the corrections of the warp's other rows
}

// The same two for a number of fours that fits the segment.
template <class Layout>
__device__ __forceinline__ void tile_products(const StateTile& state,
                                              const Segment<Layout>& segment,
                                              TileSums<Layout>& sums) {
  with_slots(segment, [&]<int kUsed>() { tile_products<kUsed>(state, segment, sums); });
}
template <class Layout, class Keep>
__device__ __forceinline__ void solve_tile(const Segment<Layout>& segment, int first_value,
                                           const typename Layout::Scratch& scratch, int warp,
                                           const TileOutput& output, TileSums<Layout>& sums,
                                           Keep&& keep) {
  with_slots(segment, [&]<int kUsed>() {
    solve_tile<kUsed>(segment, first_value, scratch, warp, output, sums, keep);
  });
}

}  // namespace replayssm::cuda
