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
  FoldOperands<Layout> folding{staged,    scratch.weights[warp],
                               1.0f,      scratch.decay,
                               count,     has_state,
                               unit.first_value, static_cast<typename Layout::State*>(out)};
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
// and query.
template <class Layout>
__device__ __forceinline__ void window_channels(const Segment<Layout>& segment,
                                                typename Layout::Scratch& scratch, int warp) {
  constexpr int kRecords = Layout::kRecords;
  const int channel = warp * 32 + ptx::lane();
#pragma unroll 1
  for (int i = 0; i < segment.count; ++i) {
    const int records = segment.history + i;
    const float k = widen(segment.key(i)[channel]), q = widen(segment.query(i)[channel]);
    float left = segment.staged.gates[records * kKeyDim + channel];
    float* const sums = scratch.partial + (warp * Layout::kTokens + i) * 2 * kRecords;
    if (records <= kRecords / 2) {
      product_sums<Layout, kRecords / 2>(segment.staged, records, channel, k, q, left, sums);
    } else {
      product_sums<Layout, kRecords>(segment.staged, records, channel, k, q, left, sums);
    }
    store_decayed<Layout>(scratch.exchange[i], channel, k * left, q * left);
  }
}

// Each token's factors, and its coefficients of the records before it; a warp has every fourth
// token, a lane a record. Between two group barriers.
template <class Layout>
__device__ __forceinline__ void window_coefficients(const StepArgs& args, const Unit& unit,
                                                    const Segment<Layout>& segment,
                                                    const float* betas, int first_token,
                                                    typename Layout::Scratch& scratch, int warp) {
  constexpr int kRecords = Layout::kRecords;
  static_assert(kRecords <= 32);
  const int record = ptx::lane();
  const StagedRecords<Layout>& staged = segment.staged;
  const int history = segment.history;
  const bool exists = record < history + segment.count && record < kRecords;
  const float scale = !exists            ? 0.0f
                      : record < history ? staged.key_scales[record]
                                         : inverse_norm(scratch.key_key[record - history]);
  const float own_decay = !Layout::kKda && exists ? staged.gates[record] : 1.0f;
  for (int i = warp; i < segment.count; i += kWarpsPerGroup) {
    const int records = history + i;
    const bool live = record < records;
    const float key_norm = inverse_norm(scratch.key_key[i]);
    const float query_norm = inverse_norm(scratch.query_query[i]) * args.query_scale;
    float with_key = 0.0f, with_query = 0.0f, left = 1.0f;
    if constexpr (Layout::kKda) {
      if (live) {
        constexpr int kWarpStride = Layout::kTokens * 2 * kRecords;
        const float* const p = scratch.partial + i * 2 * kRecords + record;
        const auto sum = [&](const float* x) {
          return (x[0] + x[kWarpStride]) + (x[2 * kWarpStride] + x[3 * kWarpStride]);
        };
        with_key = sum(p) * scale * key_norm;
        with_query = sum(p + kRecords) * scale * query_norm;
      }
    } else {
      const float newest = staged.gates[records];
      const float suffix = suffix_product(live ? own_decay : 1.0f);
      const float above = ptx::shuffle_down(suffix, 1);
      const float after = record == 31 ? 1.0f : above;
      left = ptx::shuffle(suffix, 0) * newest;
      if (live) {
        const float weight = after * newest * scale;
        with_key = scratch.gram[i][record] * weight * key_norm;
        with_query = scratch.gram[Layout::kTokens + i][record] * weight * query_norm;
      }
    }
    if (record < kRecords) {
      float* const to = scratch.coefficients + record * Layout::kCoefficientPitch + 2 * i;
      to[0] = with_key;
      to[1] = with_query;
    }
    if (record == 0) {
      const float beta = betas[i];
      scratch.factors[i] = {left * key_norm, left * query_norm,
                            scratch.key_query[i] * key_norm * query_norm,
                            args.a_log == nullptr ? beta : beta_of(beta)};
      segment.staged.key_scales[records] = key_norm;
      if (unit.owns_key_row) {
        unit.key_scale_out[(unit.append_row + first_token + i) & (args.ring_rows - 1)] = key_norm;
      }
    }
  }
}

// Adds a record's contribution to the tokens from .. count - 1.
template <class Layout>
__device__ __forceinline__ void add_record(const float* coefficients, float d, int from, int count,
                                           WindowSums<Layout>& sums) {
#pragma unroll
  for (int i = 0; i < Layout::kTokens; i += 2) {
    if (i + 1 < from) continue;
    if (i >= count) break;
    const float4 c = *reinterpret_cast<const float4*>(coefficients + 2 * i);
    if (i >= from) {
      sums.key[i] = fmaf(c.x, d, sums.key[i]);
      sums.query[i] = fmaf(c.y, d, sums.query[i]);
    }
    sums.key[i + 1] = fmaf(c.z, d, sums.key[i + 1]);
    sums.query[i + 1] = fmaf(c.w, d, sums.query[i + 1]);
  }
}

// Evaluates a segment and appends its corrections. All threads of a group.
template <class Layout>
__device__ __forceinline__ void evaluate_segment(const StepArgs& args, const Unit& unit,
                                                 typename Layout::Stage& stage,
                                                 const Segment<Layout>& segment, int first_token,
                                                 bool has_state, typename Layout::Scratch& scratch,
                                                 int warp, int group_barrier) {
  using State = typename Layout::State;
  const int lane = ptx::lane();
  const int value = warp * Layout::kRowsPerWarp + lane % Layout::kRowsPerWarp;
  const bool writes_row = lane < Layout::kRowsPerWarp;
  window_gram(segment, scratch, warp);
  if constexpr (Layout::kKda) window_channels(segment, scratch, warp);
  ptx::sync_group(group_barrier);

  WindowSums<Layout> sums{};
  window_coefficients(args, unit, segment, stage.beta + first_token, first_token, scratch, warp);
  if (has_state) {
    window_products<Layout>(stage, segment, scratch.exchange, warp, scratch.products[warp], sums);
  }
  ptx::sync_group(group_barrier);

#pragma unroll
  for (int i = 0; i < Layout::kTokens; ++i) {
    if (i >= segment.count) break;
    sums.key[i] = sums.key[i] * scratch.factors[i].key + 0.0f;
    sums.query[i] = sums.query[i] * scratch.factors[i].query + 0.0f;
  }
  State* const corrections = segment.staged.corrections + unit.first_value + value;
#pragma unroll 2
  for (int j = 0; j < segment.history; ++j) {
    add_record<Layout>(scratch.coefficients + j * Layout::kCoefficientPitch,
                       widen(corrections[j * kValueDim]), 0, segment.count, sums);
  }
#pragma unroll
  for (int i = 0; i < Layout::kTokens; ++i) {
    if (i >= segment.count) break;
    const int record = segment.history + i, token = first_token + i;
    const typename Layout::TokenFactors f = scratch.factors[i];
    const float v = widen(stage.v[token * Layout::kRows + value]);
    const float d = f.beta * (v - sums.key[i]);
    const float o = fmaf(f.key_query, d, sums.query[i]);
    const State stored = narrow<State>(d);
    if (writes_row) {
      corrections[record * kValueDim] = stored;
      const int ring_row = (unit.append_row + token) & (args.ring_rows - 1);
      static_cast<State*>(unit.correction_out)[ring_row * kValueDim + value] = stored;
      store_output<Layout>(args, unit, token * args.value_heads * kValueDim + value, o);
    }
    add_record<Layout>(scratch.coefficients + record * Layout::kCoefficientPitch, widen(stored),
                       i + 1, segment.count, sums);
  }
  ptx::sync_warp();  // a fold reads the corrections of the warp's other rows
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
  append_window<Layout>(args, unit, stage, warp * 32 + lane);
  int first = 0;  // the record that follows the state's last
  bool has_state = unit.has_state != 0;
  if (unit.fold) {
    fold_in_stage<Layout>(unit, stage, scratch, first, block, has_state, unit.state_out, warp,
                          group_barrier);
    first = block;
    has_state = true;
  }
  for (int token = 0; token < unit.tokens;) {
    const int history = unit.records + token - first;
    const int count = min(unit.tokens - token, block - history);
    const Segment<Layout> segment{records_from<Layout>(stage, first), stage.q + token * kKeyDim,
                                  history, count};
    evaluate_segment<Layout>(args, unit, stage, segment, token, has_state, scratch, warp,
                             group_barrier);
    token += count;
    if (token == unit.tokens) break;
    // The stored state may still be on its way out of the stage.
    if (lane == 0) ptx::wait_for_stores_to_read();
    ptx::sync_warp();
    fold_in_stage<Layout>(unit, stage, scratch, first, block, has_state, nullptr, warp,
                          group_barrier);
    first += block;
    has_state = true;
  }
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
      pipeline, group,
      [&](const Unit& unit, typename Layout::Stage& stage, uint64_t* empty, int) {
        return window_unit<Layout>(args, unit, stage, empty, scratch, warp_in_group, 1 + group);
      });
}

}  // namespace replayssm::cuda
