// What a consumer group does with one unit of a window_step of several tokens: the fold that may be
// due, then the window in pieces that end where a block of positions ends. Between two pieces the
// finished block is folded in the stage only: its tokens are not committed yet.
#pragma once

#include "ops/cuda/step_unit.cuh"
#include "ops/cuda/window_producer.cuh"
#include "ops/cuda/window_products.cuh"

namespace replayssm::cuda {

// The window's log gates in the stage become decays; they and the keys are appended to the ring by
// the unit that owns the row. All threads of a group.
template <class Layout>
__device__ __forceinline__ void append_window(const StepArgs& args, const Unit& unit,
                                              typename Layout::Stage& stage, int thread) {
  const StagedRecords<Layout> window = records_from<Layout>(stage, unit.records);
  const auto ring_row = [&](int token) { return (unit.append_row + token) & (args.ring_rows - 1); };
  // KDA: a thread has a channel; GDN: a token.
  const int channel = Layout::kKda ? thread : 0;
  for (int i = Layout::kKda ? 0 : thread; i < unit.tokens; i += Layout::kKda ? 1 : kGroupThreads) {
    float& gate = window.gates[i * Layout::kGateWidth + channel];
    gate = decay(resolve_gate<Layout>(args, gate, unit.value_head, channel));
    if (unit.owns_gate_row) unit.gate_out[ring_row(i) * Layout::kGateWidth + channel] = gate;
  }
  if (unit.owns_key_row) {
    constexpr int kPieces = kKeyDim * sizeof(bf16) / sizeof(uint4);
    for (int i = thread; i < unit.tokens * kPieces; i += kGroupThreads) {
      reinterpret_cast<uint4*>(unit.key_out + ring_row(i / kPieces) * kKeyDim)[i % kPieces] =
          reinterpret_cast<const uint4*>(window.keys)[i];
    }
  }
}

// Folds `count` records from `first` on into the stage's state; `out` as in FoldOperands.
template <class Layout>
__device__ __forceinline__ void fold_in_stage(const Unit& unit, typename Layout::Stage& stage,
                                              typename Layout::Scratch& scratch, int first,
                                              int count, bool has_state, void* out, int warp,
                                              int group_barrier) {
  const StagedRecords<Layout> staged = records_from<Layout>(stage, first);
  FoldOperands<Layout> folding{staged,
                               scratch.weights[warp],
                               1.0f,
                               scratch.decay,
                               count,
                               has_state,
                               unit.first_value,
                               static_cast<typename Layout::State*>(out)};
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

// A window's two segments; the second is empty where the window ends with its block.
template <class Layout>
struct Window {
  int first;    // record that follows the state's last
  int history;  // records before the first token
  int count;    // tokens of the first segment
  int tokens;   // of both
  int block;

  __device__ __forceinline__ Segment<Layout> segment(typename Layout::Stage& stage,
                                                     bool second) const {
    const int first_token = second ? count : 0;
    return {records_from<Layout>(stage, first + (second ? block : 0)),
            stage.q + first_token * kKeyDim,
            first_token,
            second ? 0 : history,
            second ? tokens - count : count,
            second ? (count + 1) & ~1 : 0};
  }
};

// Each token's factors, and its coefficients of the records before it; a warp has every fourth
// token, a lane a record. Between two group barriers. Tokens that do not exist are computed as the
// last one and not stored: branches would keep the tokens from filling each other's waits.
template <class Layout>
__device__ __forceinline__ void window_coefficients(const StepArgs& args, const Unit& unit,
                                                    const Window<Layout>& window,
                                                    typename Layout::Stage& stage,
                                                    typename Layout::Scratch& scratch, int warp) {
  constexpr int kRecords = Layout::kRecords;
  static_assert(kRecords <= 32);
  const int record = ptx::lane();
#pragma unroll
  for (int turn = 0; turn < Layout::kTokens / kWarpsPerGroup; ++turn) {
    const int wanted = turn * kWarpsPerGroup + warp;
    const int i = min(wanted, unit.tokens - 1);
    const bool exists = wanted == i;
    const Segment<Layout> segment = window.segment(stage, i >= window.count);
    const StagedRecords<Layout> staged = segment.staged;
    const int records = segment.history + i - segment.first_token;
    const bool live = record < records;
    const int slot = live ? record : 0;
    // The record's token of the window, where it is none of the ring's.
    const int own_token = segment.first_token + slot - segment.history;
    const float scale = slot < segment.history ? staged.key_scales[slot]
                                               : inverse_norm(scratch.key_key[min(own_token, i)]);
    const float key_norm = inverse_norm(scratch.key_key[i]);
    const float query_norm = inverse_norm(scratch.query_query[i]) * args.query_scale;
    float with_key, with_query, left = 1.0f;
    if constexpr (Layout::kKda) {
      constexpr int kWarpStride = Layout::kTokens * 2 * kRecords;
      const float* const p = scratch.partial + i * 2 * kRecords + slot;
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
      with_key = scratch.gram[i][slot] * weight * key_norm;
      with_query = scratch.gram[Layout::kTokens + i][slot] * weight * query_norm;
    }
    if (exists && record < kRecords) {
      const int column = segment.first_column + i - segment.first_token;
      float* const to = scratch.coefficients + record * Layout::kCoefficientPitch + 2 * column;
      to[0] = live ? with_key : 0.0f;
      to[1] = live ? with_query : 0.0f;
    }
    if (exists && record == 0) {
      const float beta = stage.beta[i];
      scratch.factors[i] = {left * key_norm, left * query_norm,
                            scratch.key_query[i] * key_norm * query_norm,
                            args.a_log == nullptr ? beta : beta_of(beta)};
      staged.key_scales[records] = key_norm;
      if (unit.owns_key_row) {
        unit.key_scale_out[(unit.append_row + i) & (args.ring_rows - 1)] = key_norm;
      }
    }
  }
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
template <class Layout, int kCount>
__device__ __forceinline__ void solve(const StepArgs& args, const Unit& unit,
                                      const typename Layout::Stage& stage,
                                      const Segment<Layout>& segment,
                                      const typename Layout::Scratch& scratch, int warp,
                                      WindowSums<Layout>& sums) {
  using State = typename Layout::State;
  constexpr int kPitch = Layout::kCoefficientPitch;
  const int lane = ptx::lane();
  const int value = warp * Layout::kRowsPerWarp + lane % Layout::kRowsPerWarp;
  const bool writes_row = lane < Layout::kRowsPerWarp;
  State* const corrections = segment.staged.corrections + unit.first_value + value;
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
    const int at = min(i, last), record = segment.history + at, token = segment.first_token + at;
    const typename Layout::TokenFactors f = factors[at];
    const float v = widen(stage.v[token * Layout::kRows + value]);
    const float d = f.beta * (v - sums.key[i]);
    const float o = fmaf(f.key_query, d, sums.query[i]);
    const State stored = narrow<State>(d);
    if (writes_row && i <= last) {
      corrections[record * kValueDim] = stored;
      const int ring_row = (unit.append_row + token) & (args.ring_rows - 1);
      static_cast<State*>(unit.correction_out)[ring_row * kValueDim + value] = stored;
      store_output<Layout>(args, unit, token * args.value_heads * kValueDim + value, o);
    }
    add_record<Layout, kCount>(coefficients + record * kPitch, widen(stored), i + 1, sums);
  }
  ptx::sync_warp();  // a fold reads the corrections of the warp's other rows
}

// Evaluates a segment from the stage's state and appends its corrections. One warp; the window's
// coefficients are there.
template <class Layout>
__device__ __forceinline__ void evaluate_segment(const StepArgs& args, const Unit& unit,
                                                 const typename Layout::Stage& stage,
                                                 const Segment<Layout>& segment,
                                                 typename Layout::Scratch& scratch, int warp,
                                                 WindowSums<Layout>& sums) {
  if constexpr (Layout::kTokens == 4) {
    solve<Layout, 4>(args, unit, stage, segment, scratch, warp, sums);
  } else {
    if (segment.count <= Layout::kTokens / 2) {
      solve<Layout, Layout::kTokens / 2>(args, unit, stage, segment, scratch, warp, sums);
    } else {
      solve<Layout, Layout::kTokens>(args, unit, stage, segment, scratch, warp, sums);
    }
  }
}

// All threads of a group; false for a null row.
template <class Layout>
__device__ __forceinline__ bool window_unit(const StepArgs& args, const Unit& described,
                                            typename Layout::Stage& stage, uint64_t* empty,
                                            typename Layout::Scratch& scratch, int warp,
                                            int group_barrier) {
  const Unit unit = described;  // the table's entry may change once the stage is released
  const int lane = ptx::lane(), block = args.fold_block;
  if (unit.kind == UnitKind::null_row) {
    release(empty);
    if (lane < Layout::kRowsPerWarp) {
      const int value = warp * Layout::kRowsPerWarp + lane;
      for (int i = 0; i < unit.tokens; ++i) {
        store_output<Layout>(args, unit, i * args.value_heads * kValueDim + value, 0.0f);
      }
    }
    return false;
  }
  const int first = unit.fold ? block : 0;
  const int history = unit.records - first;
  const int count = min(unit.tokens, block - history);
  const Window<Layout> window{first, history, count, unit.tokens, block};
  const bool crosses = count < unit.tokens;

  append_window<Layout>(args, unit, stage, warp * 32 + lane);
  int tiles = 0;
#pragma unroll 1
  for (int part = 0; part <= (crosses ? 1 : 0); ++part) {
    const Segment<Layout> segment = window.segment(stage, part == 1);
    tiles = window_gram(segment, tiles, scratch, warp);
    if constexpr (Layout::kKda) window_channels(segment, scratch, warp);
  }
  bool has_state = unit.has_state != 0;
  if (unit.fold) {
    fold_in_stage<Layout>(unit, stage, scratch, 0, block, has_state, unit.state_out, warp,
                          group_barrier);
    has_state = true;
  }
  ptx::sync_group(group_barrier);
  window_coefficients(args, unit, window, stage, scratch, warp);
  ptx::sync_group(group_barrier);

#pragma unroll 1
  for (int part = 0; part <= (crosses ? 1 : 0); ++part) {
    const Segment<Layout> segment = window.segment(stage, part == 1);
    if (part == 1) {
      // The stored state may still be on its way out of the stage.
      if (lane == 0) ptx::wait_for_stores_to_read();
      ptx::sync_warp();
      fold_in_stage<Layout>(unit, stage, scratch, first, block, has_state, nullptr, warp,
                            group_barrier);
      has_state = true;
    }
    WindowSums<Layout> sums{};
    if (has_state) {
      window_products<Layout>(stage, segment,
                              scratch.exchange + (Layout::kKda ? segment.first_token : 0), warp,
                              scratch.products[warp], sums);
    }
    evaluate_segment<Layout>(args, unit, stage, segment, scratch, warp, sums);
  }
  // The next unit overwrites what the warps have exchanged.
  if constexpr (Layout::kKda) ptx::sync_group(group_barrier);
  ptx::fence_before_bulk();
  release_written(empty);
  return true;
}

template <class Layout>
__device__ __forceinline__ void window_block(const StepArgs& args, unsigned char* shared,
                                             int stages, int groups) {
  Pipeline<Layout> pipeline(shared, stages, groups);
  pipeline.init();
  const int warp = ptx::thread() / 32;
  if (warp == groups * kWarpsPerGroup) {
    produce<Layout>(WindowUnits<Layout>{args}, pipeline);
    return;
  }
  const int group = warp / kWarpsPerGroup, warp_in_group = warp % kWarpsPerGroup;
  typename Layout::Scratch& scratch = pipeline.scratch[group];
  consume_units<Layout>(
      pipeline, group, [&](const Unit& unit, typename Layout::Stage& stage, uint64_t* empty, int) {
        return window_unit<Layout>(args, unit, stage, empty, scratch, warp_in_group, 1 + group);
      });
}

}  // namespace replayssm::cuda
