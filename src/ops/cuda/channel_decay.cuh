// KDA: the part of a unit that runs over key channels, one thread a channel. It decays the ring's
// keys, multiplies them with the current key and query, and leaves for the group's warps, in the
// exchange: the products' partial sums, the decayed inputs and the channels' decays.
#pragma once

#include "ops/cuda/history.cuh"

namespace replayssm::cuda {

// Stores a channel's decayed key and query: fp32, or as the sum of two bf16 numbers (relative error
// 2^-17), which is how the matrix units take them.
template <class Layout>
__device__ __forceinline__ void store_decayed(typename Layout::Exchange& exchange, int channel,
                                              float k, float q) {
  if constexpr (Layout::kMma) {
    const uint32_t high = ptx::pack_bf16(k, q);
    const uint32_t low = ptx::pack_bf16(k - low_half(high), q - high_half(high));
    const auto store = [&](int row, uint32_t half) {
      const int at = Layout::kSwizzled ? swizzled<kKeyDim>(row, channel) : row * kKeyDim + channel;
      exchange.decayed[at] = bf16{static_cast<uint16_t>(half & 0xffffu)};
    };
    store(0, high);
    store(1, high >> 16);
    store(2, low);
    store(3, low >> 16);
  } else {
    exchange.decayed_f32[channel] = k;
    exchange.decayed_f32[kKeyDim + channel] = q;
  }
}

// The products of the kCount oldest records' decayed keys with one channel of k and q, summed over
// the warp's channels; `left` is the current token's decay in the channel, and on return that of
// the checkpoint. Decays are multiplied newest first, one after the other. What is summed together
// does not change a sum's bits (sum_over_lanes), nor do records that are not live.
template <class Layout, int kCount>
__device__ __forceinline__ void product_sums(const StagedRecords<Layout>& staged, int records,
                                             int channel, float k, float q, float& left,
                                             float* sums) {
  float partial[2 * kCount];  // [k, q][record]
#pragma unroll
  for (int j = kCount - 1; j >= 0; --j) {
    const bool live = j < records;
    const float key = live ? widen(staged.keys[j * kKeyDim + channel]) : 0.0f;
    const float decayed = key * left;
    partial[j] = decayed * k;
    partial[kCount + j] = decayed * q;
    left *= live ? staged.gates[j * kKeyDim + channel] : 1.0f;
  }
  sum_over_lanes(partial);
  constexpr int kKept = kCount > 16 ? kCount / 16 : 1;  // sums a lane holds
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int value = ptx::lane() * kKept + i;
    if (value < 2 * kCount) sums[value / kCount * Layout::kRecords + value % kCount] = partial[i];
  }
}

// Without a fold. `own_decay` is the current token's. Half of the phases have half a block of
// records or less, and half the work.
template <class Layout>
__device__ __forceinline__ void channel_products(typename Layout::Stage& stage, int records,
                                                 float own_decay, int warp,
                                                 typename Layout::Exchange& exchange) {
  const int channel = warp * 32 + ptx::lane();
  const float k = widen(stage.k[channel]), q = widen(stage.q[channel]);
  float left = own_decay;
  if constexpr (Layout::kRecords > 0) {
    constexpr int kRecords = Layout::kRecords;
    const StagedRecords<Layout> staged = records_from<Layout>(stage, 0);
    float* const sums = exchange.partial + warp * 2 * kRecords;
    if (records <= kRecords / 2) {
      product_sums<Layout, kRecords / 2>(staged, records, channel, k, q, left, sums);
    } else {
      product_sums<Layout, kRecords>(staged, records, channel, k, q, left, sums);
    }
  }
  exchange.decay[channel] = left;
  store_decayed<Layout>(exchange, channel, k * left, q * left);
}

// After the group barrier: this warp's coefficients, [record][k, q].
template <class Layout>
__device__ __forceinline__ void write_channel_coefficients(
    const typename Layout::Stage& stage, const typename Layout::Exchange& exchange,
    const Norms& norms, int records, float* coefficients) {
  constexpr int kRecords = Layout::kRecords;
  ptx::sync_warp();  // the previous unit's readers are done
#pragma unroll
  for (int i = ptx::lane(); i < 2 * kRecords; i += 32) {
    const int record = i % kRecords, which = i / kRecords;
    const float* const p = exchange.partial + i;
    const float product = (p[0] + p[2 * kRecords]) + (p[4 * kRecords] + p[6 * kRecords]);
    const float norm = which == 0 ? norms.key : norms.query;
    coefficients[2 * record + which] =
        record < records ? product * stage.key_scales[record] * norm : 0.0f;
  }
  ptx::sync_warp();
}

// With a fold of all the stage's records: their decays become the keys decayed to the end of the
// block, norms included, as fp32 or as a pair of bf16 (high part in the upper half). Returns the
// channel's decay over the block.
template <class Layout>
__device__ __forceinline__ float decay_keys_in_place(const StagedRecords<Layout>& staged,
                                                     int records, int channel) {
  float left = 1.0f;
#pragma unroll 8
  for (int j = Layout::kRecords - 1; j >= 0; --j) {
    if (j >= records) continue;
    const float own = staged.gates[j * kKeyDim + channel];
    const float key = widen(staged.keys[j * kKeyDim + channel]) * left * staged.key_scales[j];
    if constexpr (Layout::kMma) {
      const uint32_t high = ptx::pack_bf16(0.0f, key);
      const uint32_t low = ptx::pack_bf16(key - high_half(high), 0.0f);
      staged.gates[j * kKeyDim + channel] = __uint_as_float(high | low);
    } else {
      staged.gates[j * kKeyDim + channel] = key;
    }
    left *= own;
  }
  return left;
}

}  // namespace replayssm::cuda
