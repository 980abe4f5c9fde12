// What windows and chunks do with a segment: tokens evaluated from one checkpoint and the records
// before them, and the fold that comes behind.
#pragma once

#include "ops/cuda/step_unit.cuh"
#include "ops/cuda/window_products.cuh"

namespace replayssm::cuda {

// `tokens` log gates in shared memory, or projections of them, become decays; each(token, channel,
// decay) sees every one of them. All kThreads threads of a group.
template <class Layout, int kThreads = Layout::kThreads, class Each>
__device__ __forceinline__ void resolve_decays(const StepArgs& args, int value_head, float* gates,
                                               int tokens, int thread, Each&& each) {
  // KDA: a thread has a channel of every kThreads / K th token; GDN: a token.
  constexpr int kEach = kThreads / Layout::kGateWidth;
  const int channel = Layout::kKda ? thread % kKeyDim : 0;
  for (int i = thread / Layout::kGateWidth; i < tokens; i += kEach) {
    float& gate = gates[i * Layout::kGateWidth + channel];
    gate = decay(resolve_gate<Layout>(args, gate, value_head, channel));
    each(i, channel, gate);
  }
}

// Where the outputs and corrections of a value row go, this lane's, token by token.
template <class Layout>
struct RowOutput {
  using State = typename Layout::State;
  char* output;  // of the next token
  int step;      // bytes from a token's output to the next
  bool f32;
  char* ring;    // corrections of the value row
  int ring_row;  // of the next token
  int ring_mask;

  // Begins with token `token` of the unit.
  __device__ __forceinline__ RowOutput(const StepArgs& args, const Unit& unit, int token, int warp)
      : f32(args.out_f32 != 0), ring_row(unit.append_row + token), ring_mask(args.ring_rows - 1) {
    const int value = warp * Layout::kRowsPerWarp + ptx::lane() % Layout::kRowsPerWarp;
    const int size = f32 ? 4 : 2;
    step = args.value_heads * kValueDim * size;
    output = static_cast<char*>(unit.out) + static_cast<int64_t>(token) * step + value * size;
    ring = static_cast<char*>(unit.correction_out) + value * static_cast<int>(sizeof(State));
  }
  __device__ __forceinline__ void next(bool stores_d, State d, bool stores_output, float o) {
    char* const to = ring + static_cast<unsigned>(ring_row & ring_mask) *
                                static_cast<unsigned>(kValueDim * sizeof(State));
    if constexpr (Layout::kValuesInPlace) {
      // append_corrections
    } else if constexpr (sizeof(State) == 2) {
      ptx::store_where(stores_d, reinterpret_cast<uint16_t*>(to), d.bits);
    } else {
      ptx::store_where(stores_d, reinterpret_cast<float*>(to), d);
    }
    ptx::store_where(stores_output && f32, reinterpret_cast<float*>(output), o);
    ptx::store_where(stores_output && !f32, reinterpret_cast<uint16_t*>(output),
                     narrow<bf16>(o).bits);
    output += step;
    ++ring_row;
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
  fold_warp_rows<Layout>(stage, warp, folding);
  ptx::sync_warp();
}

// Folds `count` records into the rows that the group's warps have in registers; `out` as in
// FoldOperands. Three group barriers.
template <class Layout>
__device__ __forceinline__ void fold_in_registers(const StagedRecords<Layout>& staged, int count,
                                                  typename Layout::Scratch& scratch,
                                                  StateTiles<Layout>& state, void* out, int warp,
                                                  int group_barrier) {
  ptx::sync_group<Layout::kThreads>(
      group_barrier);  // the products in the place of the keys are taken
  write_fold_keys<Layout>(staged, count, scratch, warp);
  const HeadDecays<Layout> decays = head_decays<Layout>(staged, count, 1.0f);
  if (warp == 0) write_weights<Layout>(decays, scratch.weights[0]);
  ptx::sync_group<Layout::kThreads>(group_barrier);
  const float* const weights = scratch.weights[0];
  fold_tiles<Layout>(
      staged, count, warp * Layout::kRowsPerWarp, scratch, decays.total,
      [&](int record) { return weights[record]; }, state.tiles);
  ptx::sync_group<Layout::kThreads>(group_barrier);
  if (out != nullptr) {
#pragma unroll
    for (int m = 0; m < StateTiles<Layout>::kTiles; ++m) {
      store_tile(state.tiles[m],
                 static_cast<bf16*>(out) + (warp * Layout::kRowsPerWarp + 16 * m) * kKeyDim);
    }
  }
}

// GDN with fp32 states: the pass over the warps' rows, `from` on, that makes a segment's products;
// first `count` records are folded into what it reads, if any. The folded rows go to `to` unless it
// is null. Two group barriers with a fold.
template <class Layout>
__device__ __forceinline__ void pass_with_fold(const Segment<Layout>& segment,
                                               const StagedRecords<Layout>& folded, int count,
                                               const float* from, float* to,
                                               typename Layout::Scratch& scratch, int warp,
                                               int group_barrier) {
  const int rows_at = warp * Layout::kRowsPerWarp * kKeyDim;
  StatePass pass{from == nullptr ? nullptr : from + rows_at, to == nullptr ? nullptr : to + rows_at,
                 count, 1.0f};
  if (count == 0) {
    pass_over_state<Layout, false>(pass, folded, segment, scratch, warp);
    return;
  }
  ptx::sync_group<Layout::kThreads>(group_barrier);  // the fold before this one is done
  write_fold_keys<Layout>(folded, count, scratch, warp);
  const HeadDecays<Layout> decays = head_decays<Layout>(folded, count, 1.0f);
  if (warp == 0) write_weights<Layout>(decays, scratch.weights[0]);
  pass.decay = decays.total;
  ptx::sync_group<Layout::kThreads>(group_barrier);
  pass_over_state<Layout, true>(pass, folded, segment, scratch, warp);
}

// Whether several threads have the same channel, so that one may read decays that another made.
template <class Layout>
inline constexpr bool kSharesChannels = Layout::kKda&& Layout::kThreads > kKeyDim;

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

// A record's coefficients for a group's tokens, of this lane's sums.
template <class Layout>
struct GroupCoefficients {
  float4 set[GroupSums<Layout>::kSets];

  __device__ __forceinline__ explicit GroupCoefficients(const float* at) {
#pragma unroll
    for (int s = 0; s < GroupSums<Layout>::kSets; ++s) {
      set[s] = *reinterpret_cast<const float4*>(at + s * Layout::kColumns);
    }
  }
  // Adds the record's contribution to the tokens from `from` on.
  __device__ __forceinline__ void add(float d, int from, GroupSums<Layout>& sums) const {
#pragma unroll
    for (int s = 0; s < GroupSums<Layout>::kSets; ++s) {
      float(&x)[Layout::kTokenGroup] = sums.token[s];
      if (from <= 0) x[0] = fmaf(set[s].x, d, x[0]);
      if (from <= 1) x[1] = fmaf(set[s].y, d, x[1]);
      if (from <= 2) x[2] = fmaf(set[s].z, d, x[2]);
      x[3] = fmaf(set[s].w, d, x[3]);
    }
  }
};

// A segment's tokens, four at a time, from the state and the coefficients, which are there: the
// state's products, then the records before the four in ascending order, then the four one after
// the other: a token's d is what the later ones need of it. The lanes with a row's sums with keys
// make d, those with queries the outputs (GroupSums). `exchange_at` is the first token's;
// next(whether this lane stores d, d as stored, whether it stores the output, output) is called for
// every token, and for up to three that do not exist. One warp.
template <class Layout, class Next>
__device__ __forceinline__ void evaluate_segment(const Segment<Layout>& segment, int first_value,
                                                 const StateRows<Layout>& state, bool has_state,
                                                 typename Layout::Scratch& scratch, int exchange_at,
                                                 int warp, Next&& next) {
  using State = typename Layout::State;
  constexpr int kPitch = Layout::kCoefficientPitch, kGroup = Layout::kTokenGroup;
  constexpr int kColumns = Layout::kColumns, kSets = GroupSums<Layout>::kSets;
  constexpr int kRows = Layout::kRowsPerWarp;
  const int row = ptx::lane() % kRows, which = ptx::lane() / kRows, value = warp * kRows + row;
  const bool has_keys = kSets == 2 || which == 0, has_queries = kSets == 2 || which == 1;
  State* const corrections = segment.staged.corrections + first_value + value;
  const bf16* values = nullptr;  // of the next token
  if constexpr (!Layout::kValuesInPlace) {
    values = segment.v + segment.first_row * Layout::kRows + value;
  }
  const int count = segment.count;
#pragma unroll 1
  for (int first = 0; first < count; first += kGroup) {
    GroupSums<Layout> sums{};
    if (has_state) {
      if constexpr (Layout::kProductsAhead) {
        sums = load_sums<Layout>(scratch.segment_products[warp] + first * 2 * kRows);
      } else {
        sums = group_products(state, segment, first, scratch.exchange + exchange_at,
                              scratch.products[Layout::kMma ? warp : 0]);
      }
    }
    const float* const factors = scratch.factors[0] + segment.first_column + first;
    const auto four = [&](int factor) {
      return *reinterpret_cast<const float4*>(factors + factor * kColumns);
    };
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
      const float4 scale = four(Layout::kKeyFactor + (kSets == 2 ? s : which));
      float(&x)[kGroup] = sums.token[s];
      x[0] = fmaf(x[0], scale.x, 0.0f);
      x[1] = fmaf(x[1], scale.y, 0.0f);
      x[2] = fmaf(x[2], scale.z, 0.0f);
      x[3] = fmaf(x[3], scale.w, 0.0f);
    }
    const float* coefficients =
        scratch.coefficients + (kSets == 2 ? 0 : which * kColumns) + segment.first_column + first;
    State* d = corrections;
    int left = segment.history + first;  // records
#pragma unroll 1
    for (; left >= 4; left -= 4) {  // loads first, so that one waits for all
      State four_d[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) four_d[i] = d[i * kValueDim];
      const GroupCoefficients<Layout> c0(coefficients), c1(coefficients + kPitch),
          c2(coefficients + 2 * kPitch), c3(coefficients + 3 * kPitch);
      c0.add(widen(four_d[0]), 0, sums);
      c1.add(widen(four_d[1]), 0, sums);
      c2.add(widen(four_d[2]), 0, sums);
      c3.add(widen(four_d[3]), 0, sums);
      coefficients += 4 * kPitch;
      d += 4 * kValueDim;
    }
#pragma unroll 1
    for (; left > 0; --left) {
      GroupCoefficients<Layout>(coefficients).add(widen(*d), 0, sums);
      coefficients += kPitch;
      d += kValueDim;
    }
    // Tokens that do not exist come last: whatever they read, nobody uses.
    const float4 key_query4 = four(Layout::kKeyQuery), beta4 = four(Layout::kBeta);
    const float key_query[kGroup] = {key_query4.x, key_query4.y, key_query4.z, key_query4.w};
    const float beta[kGroup] = {beta4.x, beta4.y, beta4.z, beta4.w};
    float v[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const bool exists = first + i < count;
      if constexpr (Layout::kValuesInPlace) {
        v[i] = exists ? widen(d[i * kValueDim]) : 0.0f;
      } else {
        v[i] = exists ? widen(values[i * Layout::kRows]) : 0.0f;
      }
    }
    if constexpr (!Layout::kValuesInPlace) values += kGroup * Layout::kRows;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const bool exists = first + i < count;
      float own = beta[i] * (v[i] - sums.token[0][i]);
      if constexpr (kSets == 1) own = ptx::shuffle(own, row);
      const State stored = narrow<State>(own);
      if (exists && has_keys) d[i * kValueDim] = stored;
      next(exists && has_keys, stored, exists && has_queries,
           fmaf(key_query[i], own, sums.token[kSets - 1][i]));
      if (i + 1 < kGroup) {
        GroupCoefficients<Layout>(coefficients + (exists ? i * kPitch : 0))
            .add(widen(stored), i + 1, sums);
      }
    }
    ptx::sync_warp();  // the other half's lanes read what is stored here, and so does a fold
  }
}

}  // namespace replayssm::cuda
