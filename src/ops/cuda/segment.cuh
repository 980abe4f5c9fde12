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

// Where the outputs and corrections of a value row go, this lane's, from a token of a window or
// chunk on.
template <class Layout>
struct RowOutput {
  using State = typename Layout::State;
  char* outputs;
  int step;  // bytes from a token's output to the next
  bool f32;
  char* ring;  // corrections of the value row
  int ring_row;
  int ring_mask;

  __device__ __forceinline__ RowOutput(const StepArgs& args, const Unit& unit, int token, int warp)
      : f32(args.out_f32 != 0), ring_row(unit.append_row + token), ring_mask(args.ring_rows - 1) {
    const int value = warp * Layout::kRowsPerWarp + ptx::lane() % Layout::kRowsPerWarp;
    const int size = f32 ? 4 : 2;
    step = args.value_heads * kValueDim * size;
    outputs = static_cast<char*>(unit.out) + static_cast<int64_t>(token) * step + value * size;
    ring = static_cast<char*>(unit.correction_out) + value * static_cast<int>(sizeof(State));
  }
  __device__ __forceinline__ void store(bool exists, int token, float o) const {
    char* const to = outputs + token * step;
    ptx::store_where(exists && f32, reinterpret_cast<float*>(to), o);
    ptx::store_where(exists && !f32, reinterpret_cast<uint16_t*>(to), narrow<bf16>(o).bits);
  }
  __device__ __forceinline__ void append(bool exists, int token, State d) const {
    char* const to =
        ring + ((ring_row + token) & ring_mask) * static_cast<int>(kValueDim * sizeof(State));
    if constexpr (Layout::kMma) {
      ptx::store_where(exists, reinterpret_cast<uint16_t*>(to), d.bits);
    } else {
      ptx::store_where(exists, reinterpret_cast<float*>(to), d);
    }
  }
};

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

// Factors of a token, and its coefficients of the records before it; a lane a record, kRecords
// lanes a token, so that a warp may work out two. What does not exist is not stored. stored(inverse
// norm of the key) is called by one lane of a token that exists. All lanes of a warp.
template <class Layout, class Stored>
__device__ __forceinline__ void token_coefficients(const StepArgs& args,
                                                   const Segment<Layout>& segment, int index,
                                                   bool exists, typename Layout::Scratch& scratch,
                                                   const Stored& stored) {
  constexpr int kRecords = Layout::kRecords;
  static_assert(kRecords == 16 || kRecords == 32);
  const int record = ptx::lane() % kRecords, in_window = segment.first_token + index;
  const int records = segment.history + index;
  const bool live = record < records;
  const int slot = live ? record : 0;
  // The record's token, where it is none of the history's.
  const int own_token = min(segment.first_token + max(slot - segment.history, 0), in_window);
  const float own_scale = inverse_norm(scratch.key_key[own_token]);
  const float scale = slot < segment.history ? segment.staged.key_scales[slot] : own_scale;
  const float key_norm = inverse_norm(scratch.key_key[in_window]);
  const float query_norm = inverse_norm(scratch.query_query[in_window]) * args.query_scale;
  float with_key, with_query, left = 1.0f;
  if constexpr (Layout::kKda) {
    constexpr int kWarpStride = Layout::kTokens * 2 * kRecords;
    const float* const p = scratch.partial + in_window * 2 * kRecords + slot;
    const auto sum = [&](const float* x) {
      return (x[0] + x[kWarpStride]) + (x[2 * kWarpStride] + x[3 * kWarpStride]);
    };
    with_key = sum(p) * scale * key_norm;
    with_query = sum(p + kRecords) * scale * query_norm;
  } else {
    const float newest = segment.staged.gates[records], gate = segment.staged.gates[slot];
    const float suffix = suffix_product<kRecords>(live ? gate : 1.0f);
    const float above = ptx::shuffle_down(suffix, 1);
    const float after = record == kRecords - 1 ? 1.0f : above;
    left = ptx::shuffle(suffix, ptx::lane() - record) * newest;
    const float weight = after * newest * scale;
    with_key = scratch.gram[in_window][slot] * weight * key_norm;
    with_query = scratch.gram[Layout::kTokens + in_window][slot] * weight * query_norm;
  }
  if (!exists) return;
  float* const to = scratch.coefficients + record * Layout::kCoefficientPitch +
                    2 * (segment.first_column + index);
  *reinterpret_cast<float2*>(to) = float2{live ? with_key : 0.0f, live ? with_query : 0.0f};
  if (record < Layout::kZeroRecords) {
    *reinterpret_cast<float2*>(to + kRecords * Layout::kCoefficientPitch) = float2{0.0f, 0.0f};
  }
  if (record == 0) {
    const float beta = segment.beta[segment.first_row + index];
    scratch.factors[in_window] = {left * key_norm, left * query_norm,
                                  scratch.key_query[in_window] * key_norm * query_norm,
                                  args.a_log == nullptr ? beta : beta_of(beta)};
    segment.staged.key_scales[records] = key_norm;
    stored(key_norm);
  }
}

// Deals a window's or segment's tokens to kWarps warps, as many at a time as token_coefficients
// takes: body(token, whether it exists) for each of them, by all lanes.
template <class Layout, int kWarps, class Body>
__device__ __forceinline__ void each_token(int tokens, int warp, Body&& body) {
  constexpr int kAtOnce = 32 / Layout::kRecords;
#pragma unroll 1
  for (int first = warp * kAtOnce; first < tokens; first += kWarps * kAtOnce) {
    const int token = first + ptx::lane() / Layout::kRecords;
    body(min(token, tokens - 1), token < tokens);
  }
}

// Adds a record's contribution to a group's tokens from `from` on.
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

// A segment's tokens, four at a time, from the state and the coefficients, which are there: the
// state's products, then the records before the four in ascending order, then the four one after
// the other: a token's d is what the later ones need of it. Nothing is exchanged: a lane has a
// value row. write(whether it exists, token, d as stored, output) is called for every token by the
// lanes of the warp's rows. `exchange_at` is the first token's.
template <class Layout, class Write>
__device__ __forceinline__ void evaluate_segment(const Segment<Layout>& segment, int first_value,
                                                 const StateRows<Layout>& state, bool has_state,
                                                 typename Layout::Scratch& scratch, int exchange_at,
                                                 int warp, Write&& write) {
  using State = typename Layout::State;
  constexpr int kPitch = Layout::kCoefficientPitch, kGroup = Layout::kTokenGroup;
  const int lane = ptx::lane();
  const int value = warp * Layout::kRowsPerWarp + lane % Layout::kRowsPerWarp;
  const bool writes_row = lane < Layout::kRowsPerWarp;
  State* const corrections = segment.staged.corrections + first_value + value;
  const int last = segment.count - 1;
#pragma unroll 1
  for (int first = 0; first <= last; first += kGroup) {
    GroupSums<Layout> sums{};
    if (has_state) {
      sums = group_products(state, segment, first, scratch.exchange + exchange_at,
                            scratch.products[warp]);
    }
    // What does not exist is read in the place of the last token.
    const typename Layout::TokenFactors* const factors = scratch.factors + segment.first_token;
    float beta[kGroup], key_query[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const typename Layout::TokenFactors f = factors[min(first + i, last)];
      sums.key[i] = sums.key[i] * f.key + 0.0f;
      sums.query[i] = sums.query[i] * f.query + 0.0f;
      key_query[i] = f.key_query;
      beta[i] = f.beta;
    }
    const float* coefficients = scratch.coefficients + 2 * (segment.first_column + first);
    const State* older = corrections;
    const int before = segment.history + first;
#pragma unroll 4
    for (int record = 0; record < before; ++record) {
      add_record<Layout>(coefficients, widen(*older), 0, sums);
      coefficients += kPitch;
      older += kValueDim;
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const int at = min(first + i, last);
      State* const own = corrections + (segment.history + at) * kValueDim;
      float v;
      if constexpr (Layout::kValuesInPlace) {
        v = widen(*own);
      } else {
        v = widen(segment.v[(segment.first_row + at) * Layout::kRows + value]);
      }
      const float d = beta[i] * (v - sums.key[i]);
      const float o = fmaf(key_query[i], d, sums.query[i]);
      const State stored = narrow<State>(d);
      const bool exists = writes_row && first + i <= last;
      if (exists) *own = stored;
      write(exists, at, stored, o);
      if (i + 1 < kGroup) {
        add_record<Layout>(coefficients + (at - first) * kPitch, widen(stored), i + 1, sums);
      }
    }
  }
  ptx::sync_warp();  // a fold reads the corrections of the warp's other rows
}

}  // namespace replayssm::cuda
