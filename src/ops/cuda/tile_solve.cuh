// GDN in chunks: a warp's sixteen value rows of the state multiplied with the
// tokens' keys and queries, and the tokens solved one after the other, all in the layout of the
// matrix units' accumulators. The sums are those of a step of one token, in its order.
#pragma once

#include "ops/cuda/segment.cuh"

namespace replayssm::cuda {

// Sums of rows g and g + 8 of the tile, of tokens t, t + 4, .. of a segment.
template <class Layout>
struct TileSums {
  float key[Layout::kTokens / 4][2];
  float query[Layout::kTokens / 4][2];
};

// A number of a row and one of the row eight further, whose place differs in that bit alone, as
// they are stored.
template <class State>
struct RowPair;
template <>
struct RowPair<bf16> {
  uint32_t word;

  __device__ __forceinline__ RowPair(float upper, float lower)
      : word(ptx::pack_bf16(upper, lower)) {}
  __device__ __forceinline__ float upper() const { return low_half(word); }
  __device__ __forceinline__ float lower() const { return high_half(word); }
  __device__ __forceinline__ void take_from(int lane) { word = ptx::shuffle(word, lane); }
  __device__ __forceinline__ void store(bf16* rows, int at) const {
    rows[at] = bf16{static_cast<uint16_t>(word & 0xffffu)};
    rows[at ^ 8] = bf16{static_cast<uint16_t>(word >> 16)};
  }
};
template <>
struct RowPair<float> {
  float of_upper, of_lower;

  __device__ __forceinline__ RowPair(float upper, float lower) : of_upper(upper), of_lower(lower) {}
  __device__ __forceinline__ float upper() const { return of_upper; }
  __device__ __forceinline__ float lower() const { return of_lower; }
  __device__ __forceinline__ void take_from(int lane) {
    of_upper = ptx::shuffle(of_upper, lane);
    of_lower = ptx::shuffle(of_lower, lane);
  }
  __device__ __forceinline__ void store(float* rows, int at) const {
    rows[at] = of_upper;
    rows[at ^ 8] = of_lower;
  }
};

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
      RowPair<float>(upper, lower).store(reinterpret_cast<float*>(to), 0);
    } else {
      RowPair<bf16>(upper, lower).store(reinterpret_cast<bf16*>(to), 0);
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
__device__ __forceinline__ void tile_products(const TileOf<typename Layout::State>& state,
                                              const Segment<Layout>& segment,
                                              TileSums<Layout>& sums) {
  const int g = ptx::lane() >> 2;
  const bool query = (g & 1) != 0;
  const bf16* const rows = query ? segment.q : segment.staged.keys;
  const int first = query ? segment.first_row : segment.history;
  SwizzledRow row[kUsed];
#pragma unroll
  for (int n = 0; n < kUsed; ++n) {
    row[n] = SwizzledRow(rows, first + min(4 * n + (g >> 1), segment.count - 1));
  }
  StateSums<Layout::kStateParts> c[kUsed];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const ChunkOperand<Layout::kStateParts> a = state.operand(i);
#pragma unroll
    for (int n = 0; n < kUsed; ++n) c[n].multiply(a, i, row[n].chunk(i));
  }
#pragma unroll
  for (int n = 0; n < kUsed; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sums.key[n][half] = c[n].total(2 * half);
      sums.query[n][half] = c[n].total(2 * half + 1);
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
// keep(token, row of the unit, d of it and of the row eight further) is called by a token's lanes.
// One warp.
template <int kUsed, class Layout, class Keep>
__device__ __forceinline__ void solve_tile(const Segment<Layout>& segment, int first_value,
                                           const typename Layout::Scratch& scratch, int warp,
                                           const TileOutput& output, TileSums<Layout>& sums,
                                           Keep&& keep) {
  using State = typename Layout::State;
  constexpr int kPitch = Layout::kCoefficientPitch;
  const int lane = ptx::lane(), t = lane & 3;
  const int value = warp * 16 + (lane >> 2);  // and value + 8
  const int last = segment.count - 1;
  State* const corrections = segment.staged.corrections;
  const int column = first_value + value;
  const float* const factors = scratch.factors[0] + segment.first_column;
  const float* const coefficients = scratch.coefficients + 2 * (segment.first_column + t);
  const auto coefficient = [&](const float* record, int slot) {
    return *reinterpret_cast<const float2*>(record + 8 * slot);
  };
  float beta[kUsed], key_query[kUsed], v[kUsed][2];
#pragma unroll
  for (int n = 0; n < kUsed; ++n) {
    const int token = min(4 * n + t, last);
    const auto factor = [&](typename Layout::Factor f) {
      return factors[f * Layout::kColumns + token];
    };
    const float key_factor = factor(Layout::kKeyFactor);
    const float query_factor = factor(Layout::kQueryFactor);
    const int at = swizzled<Layout::kRows>(segment.first_row + token, value);
    beta[n] = factor(Layout::kBeta);
    key_query[n] = factor(Layout::kKeyQuery);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      v[n][row] = widen(segment.v[at ^ (8 * row)]);
      sums.key[n][row] = sums.key[n][row] * key_factor + 0.0f;
      sums.query[n][row] = sums.query[n][row] * query_factor + 0.0f;
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
    const int first = swizzled<kValueDim, State>(record, column);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      add_record(record + i, first ^ swizzled<0, State>(i, 0), i);
    }
  }
#pragma unroll 1
  for (; record < segment.history; ++record) {
    add_record(record, swizzled<kValueDim, State>(record, column), 0);
  }
  const float* const own = coefficients + segment.history * kPitch;
#pragma unroll
  for (int n = 0; n < kUsed; ++n) {
    const auto solved = [&](int row) { return beta[n] * (v[n][row] - sums.key[n][row]); };
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float* const from_token = own + (4 * n + r) * kPitch;
      RowPair<State> pair(solved(0), solved(1));
      pair.take_from((lane & ~3) | r);
      float d[2] = {pair.upper(), pair.lower()};
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
      const RowPair<State> pair(upper, lower);
      pair.store(corrections, swizzled<kValueDim, State>(segment.history + token, column));
      keep(token, value, pair);
      output.store(n, fmaf(key_query[n], upper, sums.query[n][0]),
                   fmaf(key_query[n], lower, sums.query[n][1]));
    }
  }
  ptx::sync_warp();  // a fold reads the corrections of the warp's other rows
}

// The same two for a number of fours that fits the segment.
template <class Layout>
__device__ __forceinline__ void tile_products(const TileOf<typename Layout::State>& state,
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
