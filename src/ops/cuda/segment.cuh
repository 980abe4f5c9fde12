// What windows and chunks do with a segment: tokens evaluated from one checkpoint and the records
// before them, and the fold in shared memory that comes behind.
#pragma once

#include "ops/cuda/step_unit.cuh"
#include "ops/cuda/window_products.cuh"

namespace replayssm::cuda {

// `tokens` log gates in shared memory, or projections of them, become decays; each(token, channel,
// decay) sees every one of them. All threads of a group.
template <class Layout, class Each>
__device__ __forceinline__ void resolve_decays(const StepArgs& args, int value_head, float* gates,
                                               int tokens, int thread, Each&& each) {
  // KDA: a thread has a channel; GDN: a token.
  const int channel = Layout::kKda ? thread : 0;
  for (int i = Layout::kKda ? 0 : thread; i < tokens; i += Layout::kKda ? 1 : Layout::kThreads) {
    float& gate = gates[i * Layout::kGateWidth + channel];
    gate = decay(resolve_gate<Layout>(args, gate, value_head, channel));
    each(i, channel, gate);
  }
}

// Folds `count` records into the state of the stage; `out` as in FoldOperands.
template <class Layout>
__device__ __forceinline__ void fold_in_stage(const StagedRecords<Layout>& staged, int first_value,
                                              typename Layout::Stage& stage,
                                              typename Layout::Scratch& scratch, int count,
                                              bool has_state, void* out, int warp,
                                              int group_barrier) {
  FoldOperands<Layout> folding{staged,      scratch.weights[warp],
                               1.0f,        scratch.decay,
                               count,       has_state,
                               first_value, static_cast<typename Layout::State*>(out)};
  if constexpr (Layout::kKda) {
    const int channel = warp * 32 + ptx::lane();
    scratch.decay[channel] = decay_keys_in_place<Layout>(staged, count, channel);
    ptx::sync_group(group_barrier);
  } else {
    const HeadDecays<Layout> decays = head_decays<Layout>(staged, count, 1.0f);
    folding.head_decay = decays.total;
    write_weights<Layout>(decays, scratch.weights[warp]);
  }
  if constexpr (Layout::kMma) {
    product_mma<Layout, true, false>(stage, InputFragments{}, warp, &folding);
  } else {
    product_fma<Layout, true, false>(stage, float4{}, float4{}, warp, &folding);
  }
  ptx::sync_warp();
}

// Folds `count` records into the rows that the group's warps have in registers; `out` as in
// FoldOperands, by way of the stage. Three group barriers.
template <class Layout>
__device__ __forceinline__ void fold_in_registers(const StagedRecords<Layout>& staged, int count,
                                                  typename Layout::Stage& stage,
                                                  typename Layout::Scratch& scratch,
                                                  StateTiles<Layout>& state, void* out, int warp,
                                                  int group_barrier) {
  ptx::sync_group(group_barrier);  // the products in the place of the keys are taken
  write_fold_keys<Layout>(staged, count, scratch, warp);
  const HeadDecays<Layout> decays = head_decays<Layout>(staged, count, 1.0f);
  write_weights<Layout>(decays, scratch.weights[warp]);
  ptx::sync_group(group_barrier);
  const float* const weights = scratch.weights[warp];
  fold_tiles<Layout>(
      staged, count, warp * Layout::kRowsPerWarp, scratch, decays.total,
      [&](int record) { return weights[record]; }, state.tiles);
  ptx::sync_group(group_barrier);
  if (out != nullptr) {
#pragma unroll
    for (int m = 0; m < StateTiles<Layout>::kTiles; ++m) {
      store_tile(state.tiles[m], stage.state + (warp * Layout::kRowsPerWarp + 16 * m) * kKeyDim);
    }
    store_rows<Layout>(stage, warp, static_cast<typename Layout::State*>(out));
  }
}

// KDA, one thread a channel: each token's products with the records before it, and its decayed key
// and query; two tokens at a time, so that one's sums fill the waits of the other's.
template <class Layout, int kCount>
__device__ __forceinline__ void channels_of_two(const Segment<Layout>& segment, int first,
                                                typename Layout::Scratch& scratch, int warp) {
  const int channel = warp * 32 + ptx::lane();
#pragma unroll
  for (int two = 0; two < 2; ++two) {
    const int i = min(first + two, segment.count - 1);
    const int at = segment.first_token + i, records = segment.history + i;
    const float k = widen(segment.key(i)[channel]), q = widen(segment.query(i)[channel]);
    float left = segment.staged.gates[records * kKeyDim + channel];
    float* const sums = scratch.partial + (warp * Layout::kTokens + at) * 2 * Layout::kRecords;
    product_sums<Layout, kCount>(segment.staged, records, channel, k, q, left, sums);
    store_decayed<Layout>(scratch.exchange[at], channel, k * left, q * left);
  }
}

template <class Layout>
__device__ __forceinline__ void window_channels(const Segment<Layout>& segment,
                                                typename Layout::Scratch& scratch, int warp) {
  constexpr int kRecords = Layout::kRecords;
#pragma unroll 1
  for (int i = 0; i < segment.count; i += 2) {
    if (segment.history + i + 1 <= kRecords / 2) {
      channels_of_two<Layout, kRecords / 2>(segment, i, scratch, warp);
    } else {
      channels_of_two<Layout, kRecords>(segment, i, scratch, warp);
    }
  }
}

// A token of a segment; where it does not exist, nothing of it is stored.
template <class Layout>
struct SegmentToken {
  Segment<Layout> segment;
  int index;
  bool exists;
};

// Factors of kCount tokens, and their coefficients of the records before them; one warp, a lane a
// record. token(i) is the ith of them. The tokens are worked out side by side, to fill each other's
// waits. stored(i, inverse norm of the key) is called by one lane for tokens that exist.
template <class Layout, int kCount, class Token, class Stored>
__device__ __forceinline__ void token_coefficients(const StepArgs& args, const Token& token,
                                                   typename Layout::Scratch& scratch,
                                                   const Stored& stored) {
  constexpr int kRecords = Layout::kRecords;
  static_assert(kRecords <= 32);
  const int record = ptx::lane();
  float key_norm[kCount], query_norm[kCount], scale[kCount], newest[kCount], suffix[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const SegmentToken<Layout> at = token(i);
    const Segment<Layout>& segment = at.segment;
    const int in_window = segment.first_token + at.index, records = segment.history + at.index;
    const bool live = record < records;
    const int slot = live ? record : 0;
    // The record's token, where it is none of the history's.
    const int own_token = max(segment.first_token, segment.first_token + slot - segment.history);
    scale[i] = inverse_norm(scratch.key_key[min(own_token, in_window)]);
    if (slot < segment.history) scale[i] = segment.staged.key_scales[slot];
    key_norm[i] = inverse_norm(scratch.key_key[in_window]);
    query_norm[i] = inverse_norm(scratch.query_query[in_window]) * args.query_scale;
    if constexpr (!Layout::kKda) {
      newest[i] = segment.staged.gates[records];
      const float gate = segment.staged.gates[slot];
      suffix[i] = live ? gate : 1.0f;
    }
  }
  if constexpr (!Layout::kKda) suffix_products(suffix);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const SegmentToken<Layout> at = token(i);
    const Segment<Layout>& segment = at.segment;
    const int in_window = segment.first_token + at.index, records = segment.history + at.index;
    const bool live = record < records;
    const int slot = live ? record : 0;
    float with_key, with_query, left = 1.0f;
    if constexpr (Layout::kKda) {
      constexpr int kWarpStride = Layout::kTokens * 2 * kRecords;
      const float* const p = scratch.partial + in_window * 2 * kRecords + slot;
      const auto sum = [&](const float* x) {
        return (x[0] + x[kWarpStride]) + (x[2 * kWarpStride] + x[3 * kWarpStride]);
      };
      with_key = sum(p) * scale[i] * key_norm[i];
      with_query = sum(p + kRecords) * scale[i] * query_norm[i];
    } else {
      const float above = ptx::shuffle_down(suffix[i], 1);
      const float after = record == 31 ? 1.0f : above;
      left = ptx::shuffle(suffix[i], 0) * newest[i];
      const float weight = after * newest[i] * scale[i];
      with_key = scratch.gram[in_window][slot] * weight * key_norm[i];
      with_query = scratch.gram[Layout::kTokens + in_window][slot] * weight * query_norm[i];
    }
    if (!at.exists) continue;
    float* const to = scratch.coefficients + record * Layout::kCoefficientPitch +
                      2 * (segment.first_column + at.index);
    if (record < kRecords) {
      *reinterpret_cast<float2*>(to) = float2{live ? with_key : 0.0f, live ? with_query : 0.0f};
    }
    if (record < Layout::kZeroRecords) {
      *reinterpret_cast<float2*>(to + kRecords * Layout::kCoefficientPitch) = float2{0.0f, 0.0f};
    }
    if (record == 0) {
      const float beta = segment.beta[segment.first_row + at.index];
      scratch.factors[in_window] = {left * key_norm[i], left * query_norm[i],
                                    scratch.key_query[in_window] * key_norm[i] * query_norm[i],
                                    args.a_log == nullptr ? beta : beta_of(beta)};
      segment.staged.key_scales[records] = key_norm[i];
      stored(i, key_norm[i]);
    }
  }
}

// Adds a record's contribution to the tokens from .. of a group.
template <class Layout>
__device__ __forceinline__ void add_record(const float* coefficients, float d, int from,
                                           GroupSums<Layout>& sums) {
#pragma unroll
  for (int i = 0; i < Layout::kTokenGroup; i += 2) {
    if (i + 1 < from) continue;
    const float4 c = *reinterpret_cast<const float4*>(coefficients + 2 * i);
    if (i >= from) {
      sums.key[i] = fmaf(c.x, d, sums.key[i]);
      sums.query[i] = fmaf(c.y, d, sums.query[i]);
    }
    sums.key[i + 1] = fmaf(c.z, d, sums.key[i + 1]);
    sums.query[i + 1] = fmaf(c.w, d, sums.query[i + 1]);
  }
}

// A column of rows of corrections, one of eight values wide in a lane's hands; record 0 is a
// multiple of eight where rows are swizzled.
template <class Layout>
struct CorrectionColumn {
  typename Layout::State* rows;
  int column;

  // Where record `first` lies, a multiple of four, and from there the one `i` < 4 further.
  __device__ __forceinline__ int four(int first) const {
    if constexpr (Layout::kSwizzled) return swizzled<kValueDim>(first, column);
    return first * kValueDim + column;
  }
  __device__ __forceinline__ static int of_four(int four, int i) {
    if constexpr (Layout::kSwizzled) return (four ^ swizzled<0>(i, 0)) + i * kValueDim;
    return four + i * kValueDim;
  }
  __device__ __forceinline__ typename Layout::State& operator[](int record) const {
    if constexpr (Layout::kSwizzled) return rows[swizzled<kValueDim>(record, column)];
    return rows[record * kValueDim + column];
  }
};

// A segment's tokens, four at a time, from the state and the coefficients, which are there: the
// state's products, then the records before the four in ascending order, then the four one after
// the other: a token's d is what the later ones need of it. Nothing is exchanged: a lane has a value
// row. write(token, value, d as stored, output) is called for every token and value row of the unit.
// One warp; `exchange_at` is the first token's.
template <class Layout, class Write>
__device__ __forceinline__ void evaluate_segment(const Segment<Layout>& segment, int first_value,
                                                 const StateRows<Layout>& state, bool has_state,
                                                 typename Layout::Scratch& scratch,
                                                 int exchange_at, int warp, Write&& write) {
  using State = typename Layout::State;
  constexpr int kPitch = Layout::kCoefficientPitch, kGroup = Layout::kTokenGroup;
  const int lane = ptx::lane();
  const int value = warp * Layout::kRowsPerWarp + lane % Layout::kRowsPerWarp;
  const bool writes_row = lane < Layout::kRowsPerWarp;
  const CorrectionColumn<Layout> corrections{segment.staged.corrections, first_value + value};
  const typename Layout::TokenFactors* const factors = scratch.factors + segment.first_token;
  const int last = segment.count - 1;
#pragma unroll 1
  for (int first = 0; first <= last; first += kGroup) {
    GroupSums<Layout> sums{};
    if (has_state) {
      sums = group_products(state, segment, first, scratch.exchange + exchange_at,
                            scratch.products[warp]);
    }
    // What does not exist is read in the place of the last token.
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const typename Layout::TokenFactors f = factors[min(first + i, last)];
      sums.key[i] = sums.key[i] * f.key + 0.0f;
      sums.query[i] = sums.query[i] * f.query + 0.0f;
    }
    const float* coefficients = scratch.coefficients + 2 * (segment.first_column + first);
    const int before = segment.history + first;
    int record = 0;
#pragma unroll 1
    for (; record + 4 <= before; record += 4, coefficients += 4 * kPitch) {
      const int four = corrections.four(record);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        add_record<Layout>(coefficients + i * kPitch,
                           widen(corrections.rows[corrections.of_four(four, i)]), 0, sums);
      }
    }
#pragma unroll 1
    for (; record < before; ++record, coefficients += kPitch) {
      add_record<Layout>(coefficients, widen(corrections[record]), 0, sums);
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const int at = min(first + i, last);
      const typename Layout::TokenFactors f = factors[at];
      State& own = corrections[segment.history + at];
      float v;
      if constexpr (Layout::kValuesInPlace) {
        v = widen(own);
      } else {
        v = widen(segment.v[(segment.first_row + at) * Layout::kRows + value]);
      }
      const float d = f.beta * (v - sums.key[i]);
      const float o = fmaf(f.key_query, d, sums.query[i]);
      const State stored = narrow<State>(d);
      if (writes_row && first + i <= last) {
        own = stored;
        write(at, value, stored, o);
      }
      if (i + 1 < kGroup) {
        add_record<Layout>(coefficients + (at - first) * kPitch, widen(stored), i + 1, sums);
      }
    }
  }
  ptx::sync_warp();  // a fold reads the corrections of the warp's other rows
}

}  // namespace replayssm::cuda
