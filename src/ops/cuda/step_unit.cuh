// What a consumer group does with one unit of a decode step: window_step for one token (with the
// fold that may be due) and packed_step, which is the same step without records and with the state
// written back.
#pragma once

#include "ops/cuda/producer.cuh"
#include "ops/cuda/state_product.cuh"

namespace replayssm::cuda {

template <class Layout>
__device__ __forceinline__ void store_output(const StepArgs& args, const Unit& unit, int64_t value,
                                             float x) {
  if (args.out_f32) {
    static_cast<float*>(unit.out)[value] = x;
  } else {
    static_cast<bf16*>(unit.out)[value] = narrow<bf16>(x);
  }
}

// Either the gate as given, or from its projection.
template <class Layout>
__device__ __forceinline__ float resolve_gate(const StepArgs& args, float given, int value_head,
                                              int channel) {
  if (args.a_log == nullptr) return given;
  return log_gate(given, args.a_log[value_head],
                  args.dt_bias[value_head * Layout::kGateWidth + channel], args.lower_bound);
}

// packed_step: S' = S diag(a) + d k^T for this warp's rows, in the stage and from there to global
// memory. `d` is of this lane's row, `head_decay` GDN's a.
template <class Layout>
__device__ __forceinline__ void write_state(typename Layout::Stage& stage, const Unit& unit,
                                            int warp, float d, float head_decay, float key_norm,
                                            const float* channel_decay) {
  using State = typename Layout::State;
  const int lane = ptx::lane();
  const int first_row = warp * Layout::kRowsPerWarp;
  const float d_norm = Layout::kKda ? d : d * key_norm;  // GDN multiplies the raw key
  if constexpr (sizeof(State) == 2) {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int column = (c ^ (g & 1)) * kChunkColumns + t * 8;
      float4 k[2] = {widen4(stage.k + column), widen4(stage.k + column + 4)};
      float4 a[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if constexpr (Layout::kKda) {
          k[i] = scaled(k[i], {key_norm, key_norm, key_norm, key_norm});
          a[i] = *reinterpret_cast<const float4*>(channel_decay + column + 4 * i);
        } else {
          a[i] = {head_decay, head_decay, head_decay, head_decay};
        }
      }
#pragma unroll
      for (int r = 0; r < Layout::kRowsPerWarp; r += 8) {
        const float row_d = ptx::shuffle(d_norm, r + g);
        const int at = (first_row + r + g) * kKeyDim + column;
        const uint4 s =
            unit.has_state ? *reinterpret_cast<const uint4*>(stage.state + at) : uint4{0, 0, 0, 0};
        float4 lo = scaled({low_half(s.x), high_half(s.x), low_half(s.y), high_half(s.y)}, a[0]);
        float4 hi = scaled({low_half(s.z), high_half(s.z), low_half(s.w), high_half(s.w)}, a[1]);
        add_outer(lo, row_d, k[0]);
        add_outer(hi, row_d, k[1]);
        *reinterpret_cast<uint4*>(stage.state + at) =
            uint4{ptx::pack_bf16(lo.x, lo.y), ptx::pack_bf16(lo.z, lo.w),
                  ptx::pack_bf16(hi.x, hi.y), ptx::pack_bf16(hi.z, hi.w)};
      }
    }
  } else {
    // Other lanes have read these numbers for the products.
    if constexpr (Layout::kMma) ptx::sync_warp();
    const int column = lane * 4;
    float4 k = widen4(stage.k + column);
    float4 a{head_decay, head_decay, head_decay, head_decay};
    if constexpr (Layout::kKda) {
      k = scaled(k, {key_norm, key_norm, key_norm, key_norm});
      a = *reinterpret_cast<const float4*>(channel_decay + column);
    }
#pragma unroll
    for (int r = 0; r < Layout::kRowsPerWarp; ++r) {
      const float row_d = ptx::shuffle(d_norm, r);
      const int at = (first_row + r) * kKeyDim + column;
      float4 s =
          unit.has_state ? *reinterpret_cast<const float4*>(stage.state + at) : float4{0, 0, 0, 0};
      if constexpr (Layout::kKda) {  // as fold_rows
        s = scaled(s, a);
        add_outer(s, row_d, k);
      } else {  // as fold_chunk of one record
        s = {fmaf(a.x, s.x, row_d * k.x), fmaf(a.y, s.y, row_d * k.y), fmaf(a.z, s.z, row_d * k.z),
             fmaf(a.w, s.w, row_d * k.w)};
      }
      *reinterpret_cast<float4*>(stage.state + at) = s;
    }
  }
  store_rows<Layout>(stage, warp, static_cast<State*>(unit.state_out));
}

// The two products with the inputs: raw ones (GDN) or those in the exchange (KDA).
template <class Layout, bool kFold>
__device__ __forceinline__ RowProducts state_products(typename Layout::Stage& stage,
                                                      const typename Layout::Exchange& exchange,
                                                      const InputFragments& raw, int warp,
                                                      const FoldOperands<Layout>* fold) {
  if constexpr (Layout::kMma) {
    InputFragments x;
    if constexpr (Layout::kKda) {
      x = load_decayed<Layout>(exchange);
    } else {
      x = kFold ? raw : turned_inputs<Layout>(raw);
    }
    WarpCorrections<Layout> d;
    if constexpr (kFold) d = load_warp_corrections<Layout>(*fold, warp);
    return product_mma<Layout, kFold, true>(stage, x, warp, fold, d);
  } else {
    const int column = ptx::lane() * 4;
    const float4 k = *reinterpret_cast<const float4*>(exchange.decayed_f32 + column);
    const float4 q = *reinterpret_cast<const float4*>(exchange.decayed_f32 + kKeyDim + column);
    return product_fma<Layout, kFold, true>(stage, k, q, warp, fold);
  }
}

// All threads of a group; false for a null row. `exchange` and `coefficients` are the group's and
// the warp's scratch.
template <class Layout>
__device__ __forceinline__ bool step_unit(const StepArgs& args, const Unit& described,
                                          typename Layout::Stage& stage, uint64_t* empty,
                                          typename Layout::Exchange& exchange, float* coefficients,
                                          int warp, int group_barrier) {
  constexpr bool kPacked = Layout::kRecords == 0;
  const int lane = ptx::lane();
  const int row = lane % Layout::kRowsPerWarp;
  const int value = warp * Layout::kRowsPerWarp + row;
  const bool writes_row = lane < Layout::kRowsPerWarp;
  const Unit unit = described;  // the table's entry may change once the stage is released
  if (unit.kind == UnitKind::null_row) {
    release(empty);
    if (writes_row) store_output<Layout>(args, unit, value, 0.0f);
    return false;
  }
  const int records = unit.records;
  const bool fold = !kPacked && unit.fold != 0;
  const int channel = Layout::kKda ? warp * 32 + lane : 0;
  const float gate = resolve_gate<Layout>(args, stage.gate[channel], unit.value_head, channel);
  const float beta = args.a_log == nullptr ? stage.beta : beta_of(stage.beta);
  const InputFragments inputs = load_inputs(stage);
  const Norms norms = norms_of(inputs, args.query_scale);

  // Decays, and what the records contribute.
  const float own_decay = decay(gate);
  float left = 1.0f;  // GDN: of the state that is multiplied with the inputs
  const StagedRecords<Layout> staged = records_from<Layout>(stage, 0);
  FoldOperands<Layout> folding{staged,
                               coefficients,
                               1.0f,
                               exchange.decay,
                               records,
                               unit.has_state != 0,
                               unit.first_value,
                               static_cast<typename Layout::State*>(unit.state_out)};
  if constexpr (Layout::kKda) {
    if constexpr (!kPacked) {
      if (fold) {
        exchange.decay[channel] = decay_keys_in_place<Layout>(staged, records, channel);
        left = own_decay;
        store_decayed<Layout>(exchange, channel, widen(stage.k[channel]) * left,
                              widen(stage.q[channel]) * left);
      }
    }
    if (!fold) channel_products<Layout>(stage, records, own_decay, warp, exchange);
    left = 1.0f;
    ptx::sync_group(group_barrier);
    if constexpr (!kPacked) {
      if (!fold) {
        write_channel_coefficients<Layout>(stage, exchange, norms, records, coefficients);
      }
    }
  } else {
    left = own_decay;
    if constexpr (!kPacked) {
      const HeadDecays<Layout> decays =
          head_decays<Layout>(staged, records, fold ? 1.0f : own_decay);
      if (fold) {
        folding.head_decay = decays.total;
        write_weights<Layout>(decays, coefficients);
      } else {
        left = decays.total;
        write_coefficients<Layout>(stage, inputs, norms, decays, records, coefficients);
      }
    }
  }

  // The state's products, normalised and decayed; zero where there is no state.
  RowProducts products;
  if (fold) {
    if constexpr (!kPacked) {
      products = state_products<Layout, true>(stage, exchange, inputs, warp, &folding);
    }
  } else if (unit.has_state) {
    products = state_products<Layout, false>(stage, exchange, inputs, warp, &folding);
  }
  float y = products.key * (left * norms.key) + 0.0f;
  float x = products.query * (left * norms.query) + 0.0f;
  if constexpr (!kPacked) {
    if (!fold)
      add_history<Layout>(stage.corrections + unit.first_value + value, records, coefficients, y,
                          x);
  }
  const float d = beta * (widen(stage.v[value]) - y);
  const float o = fmaf(norms.key_query, d, x);

  if constexpr (kPacked) {
    write_state<Layout>(stage, unit, warp, d, left, norms.key, exchange.decay);
  } else {
    uint2 key{0, 0};
    if (unit.owns_key_row && warp == 0) key = reinterpret_cast<const uint2*>(stage.k)[lane];
    if (!fold) release(empty);
    using State = typename Layout::State;
    if (writes_row) static_cast<State*>(unit.correction_out)[value] = narrow<State>(d);
    if (unit.owns_key_row && warp == 0) {
      reinterpret_cast<uint2*>(unit.key_out)[lane] = key;
      if (lane == 0) *unit.key_scale_out = norms.key;
    }
    if (unit.owns_gate_row && (Layout::kKda || (warp == 0 && lane == 0))) {
      unit.gate_out[channel] = own_decay;
    }
  }
  if (writes_row) store_output<Layout>(args, unit, value, o);
  if (kPacked || fold) release_written(empty);
  return true;
}

// The body of both kernels.
template <class Layout>
__device__ __forceinline__ void step_block(const StepArgs& args, unsigned char* shared, int stages,
                                           int groups) {
  run_units<Layout>(StepUnits<Layout>{args}, shared, stages, groups,
                    [&](const Unit& unit, typename Layout::Stage& stage, uint64_t* empty,
                        typename Layout::Scratch& scratch, int turn, int warp, int group_barrier) {
                      return step_unit<Layout>(args, unit, stage, empty, scratch.exchange[turn],
                                               scratch.coefficients[warp], warp, group_barrier);
                    });
}

}  // namespace replayssm::cuda
