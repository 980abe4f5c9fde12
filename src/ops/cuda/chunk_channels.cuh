// KDA chunks in tiles: what the helpers prepare per channel of a block of positions, and how the
// walking warps use it. The sums are those of a step of one token, in its order (channel_decay.cuh,
// state_product.cuh).
#pragma once

#include "ops/cuda/tile_solve.cuh"

namespace replayssm::cuda {

// Positions p and 15 - p of a block, one of its channels a lane: products of the tokens there with
// the records before them, summed over the warp's channels, and the tokens' decayed keys and
// queries. Together the two have fifteen records, so every pair of positions is the same work and
// fills one sum over lanes.
template <class Layout>
class ChannelPairs {
 public:
  static constexpr int kPairs = Layout::kRecords / 2;
  static_assert(Layout::kRecords == 16);

  // `quarter` of the channels.
  __device__ __forceinline__ ChannelPairs(const Segment<Layout>& segment,
                                          typename Layout::Scratch& scratch, int quarter)
      : segment_(segment),
        scratch_(scratch),
        quarter_(quarter),
        channel_(quarter * 32 + ptx::lane()) {
    // The oldest records have a place that does not depend on the pair: loaded once for all.
#pragma unroll
    for (int j = 0; j < kOldest; ++j) {
      keys_[j] = key(j);
      gates_[j] = gate(j);
    }
  }

  // Pair `low` < 8. All lanes.
  __device__ __forceinline__ void evaluate(int low) {
    const int high = Layout::kRecords - 1 - low;
    if (!is_token(low) && !is_token(high)) return;
    // Value s < high belongs to record s and the later position, the ones behind to record s - high
    // and the earlier position; the last one to nothing.
    float partial[2 * Layout::kRecords];  // [key, query][value]
    partial[Layout::kRecords - 1] = partial[2 * Layout::kRecords - 1] = 0.0f;
    Token token = begin(low);
    int record = low - 1;
    const auto add = [&](int s, float record_key, float record_gate) {
      const float decayed = record_key * token.left;
      partial[s] = decayed * token.key;
      partial[Layout::kRecords + s] = decayed * token.query;
      token.left *= record_gate;
    };
#pragma unroll
    for (int s = Layout::kRecords - 2; s >= kOldest; --s) {
      if (s == high - 1) {
        finish(low, token);
        token = begin(high);
        record = s;
      }
      add(s, key(record), gate(record));
      --record;
    }
#pragma unroll
    for (int s = kOldest - 1; s >= 0; --s) add(s, keys_[s], gates_[s]);
    finish(high, token);
    sum_over_lanes(partial);
    const int s = ptx::lane() % Layout::kRecords, which = ptx::lane() / Layout::kRecords;
    const int position = s < high ? high : low;
    if (s < Layout::kRecords - 1 && is_token(position)) {
      scratch_.partial[((quarter_ * Layout::kTokens + position - segment_.history) * 2 + which) *
                           Layout::kRecords +
                       (s < high ? s : s - high)] = partial[0];
    }
  }

 private:
  static constexpr int kOldest = kPairs - 1;

  struct Token {
    float key, query;
    float left;  // decay from the record that comes next to the token
  };

  __device__ __forceinline__ bool is_token(int position) const {
    return position >= segment_.history && position < segment_.history + segment_.count;
  }
  __device__ __forceinline__ float key(int position) const {
    return widen(segment_.staged.keys[swizzled<kKeyDim>(position, channel_)]);
  }
  __device__ __forceinline__ float gate(int position) const {
    return segment_.staged.gates[position * kKeyDim + channel_];
  }
  __device__ __forceinline__ Token begin(int position) const {
    return {key(position), widen(segment_.q[swizzled<kKeyDim>(position, channel_)]),
            gate(position)};
  }
  __device__ __forceinline__ void finish(int position, const Token& token) {
    if (!is_token(position)) return;
    store_decayed<Layout>(scratch_.exchange[position - segment_.history], channel_,
                          token.key * token.left, token.query * token.left);
  }

  const Segment<Layout>& segment_;
  typename Layout::Scratch& scratch_;
  int quarter_, channel_;
  float keys_[kOldest], gates_[kOldest];
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
