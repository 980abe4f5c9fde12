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

// The factors of a segment's token `i`, and its coefficients of the records before it; one warp, a
// lane a record. Returns the inverse norm of the token's key. Where `exists` is false nothing is
// stored.
template <class Layout>
__device__ __forceinline__ float token_coefficients(const StepArgs& args,
                                                    const Segment<Layout>& segment, int i,
                                                    bool exists,
                                                    typename Layout::Scratch& scratch) {
  constexpr int kRecords = Layout::kRecords;
  static_assert(kRecords <= 32);
  const StagedRecords<Layout> staged = segment.staged;
  const int record = ptx::lane(), token = segment.first_token + i;
  const int records = segment.history + i;
  const bool live = record < records;
  const int slot = live ? record : 0;
  // The record's token, where it is none of the history's.
  const int own_token = segment.first_token + slot - segment.history;
  const float scale = slot < segment.history ? staged.key_scales[slot]
                                             : inverse_norm(scratch.key_key[min(own_token, token)]);
  const float key_norm = inverse_norm(scratch.key_key[token]);
  const float query_norm = inverse_norm(scratch.query_query[token]) * args.query_scale;
  float with_key, with_query, left = 1.0f;
  if constexpr (Layout::kKda) {
    constexpr int kWarpStride = Layout::kTokens * 2 * kRecords;
    const float* const p = scratch.partial + token * 2 * kRecords + slot;
    const auto sum = [&](const float* x) {
      return (x[0] + x[kWarpStride]) + (x[2 * kWarpStride] + x[3 * kWarpStride]);
    };
    with_key = sum(p) * scale * key_norm;
    with_query = sum(p + kRecords) * scale * query_norm;
  } else {
    const float newest = staged.gates[records];
    const float suffix = suffix_product(live ? staged.gates[slot] : 1.0f);
    const float above = ptx::shuffle_down(suffix, 1);
    const float after = record == 31 ? 1.0f : above;
    left = ptx::shuffle(suffix, 0) * newest;
    const float weight = after * newest * scale;
    with_key = scratch.gram[token][slot] * weight * key_norm;
    with_query = scratch.gram[Layout::kTokens + token][slot] * weight * query_norm;
  }
  if (exists && record < kRecords) {
    float* const to =
        scratch.coefficients + record * Layout::kCoefficientPitch + 2 * (segment.first_column + i);
    to[0] = live ? with_key : 0.0f;
    to[1] = live ? with_query : 0.0f;
  }
  if (exists && record == 0) {
    const float beta = segment.beta[segment.first_row + i];
    scratch.factors[token] = {left * key_norm, left * query_norm,
                              scratch.key_query[token] * key_norm * query_norm,
                              args.a_log == nullptr ? beta : beta_of(beta)};
    staged.key_scales[records] = key_norm;
  }
  return key_norm;
}

// Adds a record's contribution to the tokens from .. kCount - 1 of a segment.
template <class Layout, int kCount>
__device__ __forceinline__ void add_record(const float* coefficients, float d, int from,
                                           WindowSums<Layout>& sums) {
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
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

// A segment's history, then its tokens one after the other: a token's d is what the later ones need
// of it. kCount >= segment.count tokens are computed, without branches between them.
// write(token, value, d as stored, output) is called for every token and value row of the unit.
template <class Layout, int kCount, class Write>
__device__ __forceinline__ void solve(const Segment<Layout>& segment, int first_value,
                                      const typename Layout::Scratch& scratch, int warp,
                                      WindowSums<Layout>& sums, Write&& write) {
  using State = typename Layout::State;
  constexpr int kPitch = Layout::kCoefficientPitch;
  const int lane = ptx::lane();
  const int value = warp * Layout::kRowsPerWarp + lane % Layout::kRowsPerWarp;
  const bool writes_row = lane < Layout::kRowsPerWarp;
  State* const corrections = segment.staged.corrections + first_value + value;
  const typename Layout::TokenFactors* const factors = scratch.factors + segment.first_token;
  const float* const coefficients = scratch.coefficients + 2 * segment.first_column;
  // What does not exist is read in the place of the last token.
  const int last = segment.count - 1;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const typename Layout::TokenFactors f = factors[min(i, last)];
    sums.key[i] = sums.key[i] * f.key + 0.0f;
    sums.query[i] = sums.query[i] * f.query + 0.0f;
  }
#pragma unroll 4
  for (int j = 0; j < segment.history; ++j) {
    add_record<Layout, kCount>(coefficients + j * kPitch, widen(corrections[j * kValueDim]), 0,
                               sums);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int at = min(i, last), record = segment.history + at;
    const typename Layout::TokenFactors f = factors[at];
    const float v = widen(segment.v[(segment.first_row + at) * Layout::kRows + value]);
    const float d = f.beta * (v - sums.key[i]);
    const float o = fmaf(f.key_query, d, sums.query[i]);
    const State stored = narrow<State>(d);
    if (writes_row && i <= last) {
      corrections[record * kValueDim] = stored;
      write(at, value, stored, o);
    }
    add_record<Layout, kCount>(coefficients + record * kPitch, widen(stored), i + 1, sums);
  }
  ptx::sync_warp();  // a fold reads the corrections of the warp's other rows
}

// Evaluates a segment from the state's products with it, whose coefficients are there. One warp;
// `write` as in solve().
template <class Layout, class Write>
__device__ __forceinline__ void evaluate_segment(const Segment<Layout>& segment, int first_value,
                                                 const typename Layout::Scratch& scratch, int warp,
                                                 WindowSums<Layout>& sums, Write&& write) {
  if constexpr (Layout::kTokens == 4) {
    solve<Layout, 4>(segment, first_value, scratch, warp, sums, write);
  } else {
    if (segment.count <= Layout::kTokens / 2) {
      solve<Layout, Layout::kTokens / 2>(segment, first_value, scratch, warp, sums, write);
    } else {
      solve<Layout, Layout::kTokens>(segment, first_value, scratch, warp, sums, write);
    }
  }
}

}  // namespace replayssm::cuda
