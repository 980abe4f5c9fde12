// KDA chunks in tiles: what the helpers prepare per channel of a block of positions, and how the
// walking warps use it. The sums are those of a step of one token, in its order (channel_decay.cuh,
// state_product.cuh).
#pragma once

#include "ops/cuda/tile_solve.cuh"

namespace replayssm::cuda {

// Positions p and 15 - p of a block: products of the tokens there with the records before them,
// summed over quarters of the channels, and the tokens' decayed keys and queries. Together the two
// have fifteen records, so every pair of positions is the same work.
//
// A warp has two quarters, half of its lanes each; a lane has channels c and c + 16 of its quarter,
// which a sum over 32 lanes would add first, and keeps the records' keys and decays of both. The
// rest of the sums' tree is for lanes that have one product each: they read what all others made of
// it, which takes half the instructions of an exchange by shuffles.
template <class Layout>
class ChannelPairs {
 public:
  static constexpr int kPairs = Layout::kRecords / 2;
  static_assert(Layout::kRecords == 16);

  // `half` of the channels; `products` are the warp's own.
  __device__ __forceinline__ ChannelPairs(const Segment<Layout>& segment,
                                          typename Layout::Scratch& scratch, int half,
                                          typename Layout::PairProducts& products)
      : segment_(segment),
        scratch_(scratch),
        half_(half),
        channel_(half * (kKeyDim / 2) + (ptx::lane() & 16) * 2 + (ptx::lane() & 15)),
        products_(products) {
#pragma unroll
    for (int j = 0; j < kOthers; ++j) {
      keys_[j] = two_of(segment.staged.keys, j);
      gates_[j] = gates(j);
    }
  }

  // Pair `low` < 8. All lanes.
  __device__ __forceinline__ void evaluate(int low) {
    const int high = kOthers - low;
    // Rows of products: record j of the later position, then those of the earlier one.
    if (is_token(low)) {
      Token token = begin(low);
#pragma unroll
      for (int j = kPairs - 2; j >= 0; --j) {
        if (j < low) multiply(token, j, high + j);
      }
      finish(low, token);
    }
    if (is_token(high)) {
      Token token = begin(high);
#pragma unroll
      for (int j = kOthers - 1; j >= 0; --j) {
        if (j < kPairs || j < high) multiply(token, j, j);
      }
      finish(high, token);
    }
    ptx::sync_warp();
    const int row = ptx::lane() % Layout::kRecords, which = ptx::lane() / Layout::kRecords;
    const int position = row < high ? high : low;
    if (row < kOthers && is_token(position)) {
      const float* const products = products_.rows[ptx::lane()];
      float* const to = scratch_.partial +
                        ((position - segment_.history) * 2 + which) * Layout::kRecords +
                        (row < high ? row : row - high);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        to[(2 * half_ + i) * Layout::kTokens * 2 * Layout::kRecords] = sum_of_16(products + 16 * i);
      }
    }
    ptx::sync_warp();
  }

 private:
  static constexpr int kOthers = Layout::kRecords - 1;  // most records before a token

  struct Token {
    float2 key, query;
    float2 left;  // decay from the record that comes next to the token
  };

  // In the order of sum_over_lanes(), whose first step is done.
  static __device__ __forceinline__ float sum_of_16(const float* x) {
    float4 part[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) part[i] = *reinterpret_cast<const float4*>(x + 4 * i);
    const float4 four = sum(sum(part[0], part[2]), sum(part[1], part[3]));
    return (four.x + four.z) + (four.y + four.w);
  }
  static __device__ __forceinline__ float4 sum(const float4& a, const float4& b) {
    return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
  }

  __device__ __forceinline__ bool is_token(int position) const {
    return position >= segment_.history && position < segment_.history + segment_.count;
  }
  // Of both channels of a swizzled row.
  __device__ __forceinline__ uint32_t two_of(const bf16* rows, int row) const {
    return pair_of(rows[swizzled<kKeyDim>(row, channel_)],
                   rows[swizzled<kKeyDim>(row, channel_ + 16)]);
  }
  __device__ __forceinline__ float2 gates(int position) const {
    const float* const row = segment_.staged.gates + position * kKeyDim + channel_;
    return {row[0], row[16]};
  }
  static __device__ __forceinline__ float2 widen2(uint32_t pair) {
    return {low_half(pair), high_half(pair)};
  }
  static __device__ __forceinline__ float2 product(const float2& a, const float2& b) {
    return {a.x * b.x, a.y * b.y};
  }
  __device__ __forceinline__ Token begin(int position) const {
    return {widen2(two_of(segment_.staged.keys, position)), widen2(two_of(segment_.q, position)),
            gates(position)};
  }
  __device__ __forceinline__ void multiply(Token& token, int record, int row) {
    const float2 decayed = product(widen2(keys_[record]), token.left);
    const float2 with_key = product(decayed, token.key);
    const float2 with_query = product(decayed, token.query);
    products_.rows[row][ptx::lane()] = with_key.x + with_key.y;
    products_.rows[Layout::kRecords + row][ptx::lane()] = with_query.x + with_query.y;
    token.left = product(token.left, gates_[record]);
  }
  __device__ __forceinline__ void finish(int position, const Token& token) {
    typename Layout::Exchange& exchange = scratch_.exchange[position - segment_.history];
    const float2 key = product(token.key, token.left), query = product(token.query, token.left);
    store_decayed<Layout>(exchange, channel_, key.x, query.x);
    store_decayed<Layout>(exchange, channel_ + 16, key.y, query.y);
  }

  const Segment<Layout>& segment_;
  typename Layout::Scratch& scratch_;
  int half_, channel_;
  typename Layout::PairProducts& products_;
  uint32_t keys_[kOthers];
  float2 gates_[kOthers];
};

// The keys of a fold of `records` records, decayed to the end of the block, as B operands, and the
// channels' decays over the block; a thread has channel `quarter` * 32 + its lane. Words
// [column tile][lane][high of records 2 t and 8 + 2 t, low of both], column tiles as in
// write_fold_keys(). Keys' scales are the ring's, or come from the tokens' products with
// themselves.
template <class Layout>
__device__ __forceinline__ void write_decayed_fold_keys(const Segment<Layout>& segment, int records,
                                                        typename Layout::Scratch& scratch,
                                                        int quarter) {
  constexpr int kRecords = Layout::kRecords;
  static_assert(kRecords == 16);
  const int lane = ptx::lane(), channel = quarter * 32 + lane;
  const int own = lane % kRecords;
  const float own_scale =
      own < segment.history
          ? segment.staged.key_scales[own]
          : inverse_norm(scratch.key_key[min(own - segment.history, Layout::kTokens - 1)]);
  float left = 1.0f;
  uint32_t words[kRecords / 2][2];  // of records 2 i and 2 i + 1: high, low parts
#pragma unroll
  for (int i = kRecords / 2 - 1; i >= 0; --i) {
    float keys[2] = {};
#pragma unroll
    for (int j = 2 * i + 1; j >= 2 * i; --j) {
      const float scale = ptx::shuffle(own_scale, j);
      if (j >= records) continue;
      keys[j & 1] = widen(segment.staged.keys[swizzled<kKeyDim>(j, channel)]) * left * scale;
      left *= segment.staged.gates[j * kKeyDim + channel];
    }
    const uint32_t high = ptx::pack_bf16(keys[0], keys[1]);
    words[i][0] = high;
    words[i][1] = ptx::pack_bf16(keys[0] - low_half(high), keys[1] - high_half(high));
  }
  scratch.decay[channel] = left;
  const int g = (lane >> 3) * 2 + (lane & 1);
  uint32_t* const to = scratch.fold_keys[quarter * 4 + ((lane & 7) >> 1)] + g * 16;
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    *reinterpret_cast<uint4*>(to + 4 * t) =
        uint4{words[t][0], words[4 + t][0], words[t][1], words[4 + t][1]};
  }
}

// The tile's products with a segment's decayed keys and queries. Columns of the B operands: key and
// query of four tokens, of their high parts and then of their low parts.
template <int kUsed, class Layout>
__device__ __forceinline__ void decayed_tile_products(const StateTile& state,
                                                      const Segment<Layout>& segment,
                                                      const typename Layout::Scratch& scratch,
                                                      TileSums<Layout>& sums) {
  const int g = ptx::lane() >> 2;
#pragma unroll
  for (int n = 0; n < kUsed; ++n) {
    const bf16* const decayed = scratch.exchange[min(4 * n + (g >> 1), segment.count - 1)].decayed;
    float c[2][2][4] = {};  // [part][parity of the chunk]
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const InputFragments b = load_swizzled(decayed, 2 * part + (g & 1));
#pragma unroll
      for (int i = 0; i < kChunks; ++i) state.multiply(c[part][i & 1], i, b.chunk[i]);
    }
    const auto sum = [&](int i) { return (c[0][0][i] + c[0][1][i]) + (c[1][0][i] + c[1][1][i]); };
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sums.key[n][half] = sum(2 * half);
      sums.query[n][half] = sum(2 * half + 1);
    }
  }
}

// Folds `records` records, whose decayed keys are in the scratch, into the tile of value rows from
// `first_value` on.
template <class Layout>
__device__ __forceinline__ void fold_decayed_tile(const bf16* corrections, int records,
                                                  int first_value,
                                                  const typename Layout::Scratch& scratch,
                                                  StateTile& state) {
  const int lane = ptx::lane(), t = lane & 3;
  uint32_t d[4];
  ptx::load_transposed(d, corrections + swizzled<kValueDim>((lane >> 4) * 8 + (lane & 7),
                                                            first_value + ((lane >> 3) & 1) * 8));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int j = 2 * t + (i >> 1) * 8;
    d[i] &= (j < records ? 0xffffu : 0u) | (j + 1 < records ? 0xffff0000u : 0u);
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 a =
          *reinterpret_cast<const float2*>(scratch.decay + c * kChunkColumns + t * 8 + 2 * i);
      const uint4 k = *reinterpret_cast<const uint4*>(scratch.fold_keys[4 * c + i] + 4 * lane);
      const uint32_t u = state.pair(c, i, false), l = state.pair(c, i, true);
      float sum[4] = {a.x * low_half(u), a.y * high_half(u), a.x * low_half(l), a.y * high_half(l)};
      ptx::mma(sum, d[0], d[1], d[2], d[3], k.x, k.y);
      ptx::mma(sum, d[0], d[1], d[2], d[3], k.z, k.w);
      state.pair(c, i, false) = ptx::pack_bf16(sum[0], sum[1]);
      state.pair(c, i, true) = ptx::pack_bf16(sum[2], sum[3]);
    }
  }
}

}  // namespace replayssm::cuda
