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
  // KDA: a thread has a channel of every kThreads / K th token; GDN: a token.
  constexpr int kEach = Layout::kThreads / Layout::kGateWidth;
  const int channel = Layout::kKda ? thread % kKeyDim : 0;
  for (int i = thread / Layout::kGateWidth; i < tokens; i += kEach) {
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
    const int value = warp * 16 + (ptx::lane() & 15);
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
    if (warp < kKeyDim / 32) {
      const int channel = warp * 32 + ptx::lane();
      scratch.decay[channel] = decay_keys_in_place<Layout>(staged, count, channel);
    }
    ptx::sync_group<Layout::kThreads>(group_barrier);
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
                                                  StateTile& state, void* out, int warp,
                                                  int group_barrier) {
  ptx::sync_group<Layout::kThreads>(
      group_barrier);  // the products in the place of the keys are taken
  write_fold_keys<Layout>(staged, count, scratch, warp);
  const HeadDecays<Layout> decays = head_decays<Layout>(staged, count, 1.0f);
  write_weights<Layout>(decays, scratch.weights[warp]);
  ptx::sync_group<Layout::kThreads>(group_barrier);
  const float* const weights = scratch.weights[warp];
  StateTile tiles[1] = {state};
  fold_tiles<Layout>(
      staged, count, warp * 16, scratch, decays.total, [&](int record) { return weights[record]; },
      tiles);
  state = tiles[0];
  ptx::sync_group<Layout::kThreads>(group_barrier);
  if (out != nullptr) {
    store_tile(state, stage.state + warp * 16 * kKeyDim);
    store_rows<Layout>(stage, warp, static_cast<typename Layout::State*>(out));
  }
}

// Whether several threads have the same channel, so that one may read decays that another made.
template <class Layout>
inline constexpr bool kSharesChannels = Layout::kKda && Layout::kThreads > kKeyDim;

// KDA, one thread a channel: each token's products with the records before it, and its decayed key
// and query; the tokens are dealt to as many sets of threads as a group has.
template <class Layout>
__device__ __forceinline__ void window_channels(const Segment<Layout>& segment,
                                                typename Layout::Scratch& scratch, int warp) {
  constexpr int kRecords = Layout::kRecords, kQuarters = kKeyDim / 32;
  const int quarter = warp % kQuarters, channel = quarter * 32 + ptx::lane();
#pragma unroll 1
  for (int i = warp / kQuarters; i < segment.count; i += Layout::kWarps / kQuarters) {
    const int at = segment.first_token + i, records = segment.history + i;
    const float k = widen(segment.key(i)[channel]), q = widen(segment.query(i)[channel]);
    float left = segment.staged.gates[records * kKeyDim + channel];
    float* const sums = scratch.partial + (quarter * Layout::kTokens + at) * 2 * kRecords;
    if (records <= kRecords / 2) {
      product_sums<Layout, kRecords / 2>(segment.staged, records, channel, k, q, left, sums);
    } else {
      product_sums<Layout, kRecords>(segment.staged, records, channel, k, q, left, sums);
    }
    store_decayed<Layout>(scratch.exchange[at], channel, k * left, q * left);
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
  constexpr int kPitch = Layout::kCoefficientPitch, kColumns = Layout::kColumns;
  const int column = segment.first_column + index;
  float* const to = scratch.coefficients + record * kPitch;
  if constexpr (Layout::kTiled) {
    float2* const both = reinterpret_cast<float2*>(to) + column;
    *both = float2{live ? with_key : 0.0f, live ? with_query : 0.0f};
    if (record < Layout::kZeroRecords) both[kRecords * kPitch / 2] = float2{0.0f, 0.0f};
  } else {
    to[column] = live ? with_key : 0.0f;
    to[kColumns + column] = live ? with_query : 0.0f;
  }
  if (record == 0) {
    const float beta = segment.beta[segment.first_row + index];
    scratch.factors[Layout::kKeyFactor][column] = left * key_norm;
    scratch.factors[Layout::kQueryFactor][column] = left * query_norm;
    scratch.factors[Layout::kKeyQuery][column] =
        scratch.key_query[in_window] * key_norm * query_norm;
    scratch.factors[Layout::kBeta][column] = args.a_log == nullptr ? beta : beta_of(beta);
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
  const float4 c = *reinterpret_cast<const float4*>(coefficients);
  const float each[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
  for (int i = 0; i < Layout::kTokenGroup; ++i) {
    if (i >= from) sums.token[i] = fmaf(each[i], d, sums.token[i]);
  }
}

// A segment's tokens, four at a time, from the state and the coefficients, which are there: the
// state's products, then the records before the four in ascending order, then the four one after
// the other: a token's d is what the later ones need of it. Lane 16 w + r has value row r and the
// sums with keys (w = 0), from which d comes, or with queries (w = 1), which give the outputs.
// write(token, whether this lane stores d, whether it stores the output, d as stored, output).
// `exchange_at` is the first token's. One warp.
template <class Layout, class Write>
__device__ __forceinline__ void evaluate_segment(const Segment<Layout>& segment, int first_value,
                                                 const StateRows<Layout>& state, bool has_state,
                                                 typename Layout::Scratch& scratch, int exchange_at,
                                                 int warp, Write&& write) {
  using State = typename Layout::State;
  constexpr int kPitch = Layout::kCoefficientPitch, kGroup = Layout::kTokenGroup;
  constexpr int kColumns = Layout::kColumns;
  const int row = ptx::lane() & 15, which = ptx::lane() >> 4, value = warp * 16 + row;
  State* const corrections = segment.staged.corrections + first_value + value;
  const int last = segment.count - 1;
#pragma unroll 1
  for (int first = 0; first <= last; first += kGroup) {
    GroupSums<Layout> sums{};
    if (has_state) {
      sums = group_products(state, segment, first, scratch.exchange + exchange_at,
                            scratch.products[Layout::kMma ? warp : 0]);
    }
    const float* const factors = scratch.factors[0] + segment.first_column + first;
    const auto four = [&](int factor) {
      return *reinterpret_cast<const float4*>(factors + factor * kColumns);
    };
    const float4 scale = four(Layout::kKeyFactor + which);
    const float4 key_query4 = four(Layout::kKeyQuery), beta4 = four(Layout::kBeta);
    const float key_query[kGroup] = {key_query4.x, key_query4.y, key_query4.z, key_query4.w};
    const float beta[kGroup] = {beta4.x, beta4.y, beta4.z, beta4.w};
    sums.token[0] = sums.token[0] * scale.x + 0.0f;
    sums.token[1] = sums.token[1] * scale.y + 0.0f;
    sums.token[2] = sums.token[2] * scale.z + 0.0f;
    sums.token[3] = sums.token[3] * scale.w + 0.0f;
    const float* coefficients =
        scratch.coefficients + which * kColumns + segment.first_column + first;
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
      // What does not exist is read in the place of the last token.
      const int at = min(first + i, last);
      State* const own = corrections + (segment.history + at) * kValueDim;
      float v;
      if constexpr (Layout::kValuesInPlace) {
        v = widen(*own);
      } else {
        v = widen(segment.v[(segment.first_row + at) * Layout::kRows + value]);
      }
      const float d = ptx::shuffle(beta[i] * (v - sums.token[i]), row);
      const State stored = narrow<State>(d);
      const bool exists = first + i <= last, stores_d = exists && which == 0;
      if (stores_d) *own = stored;
      write(at, stores_d, exists && which != 0, stored, fmaf(key_query[i], d, sums.token[i]));
      if (i + 1 < kGroup) {
        add_record<Layout>(coefficients + (at - first) * kPitch, widen(stored), i + 1, sums);
      }
    }
    ptx::sync_warp();  // the other half's lanes read what is stored here, and so does a fold
  }
}

}  // namespace replayssm::cuda
