// What a consumer group does with one unit of a window_step of several tokens: the fold that may be
// due, then the window in pieces that end where a block of positions ends. Between two pieces the
// finished block is folded on chip only: its tokens are not committed yet.
#pragma once

#include "ops/cuda/segment.cuh"
#include "ops/cuda/window_producer.cuh"

namespace replayssm::cuda {

// The window's log gates in the stage become decays; they and the keys are appended to the ring by
// the unit that owns the row. All threads of a group.
template <class Layout>
__device__ __forceinline__ void append_window(const StepArgs& args, const Unit& unit,
                                              typename Layout::Stage& stage, int thread) {
  const auto ring_row = [&](int token) { return (unit.append_row + token) & (args.ring_rows - 1); };
  resolve_decays<Layout>(args, unit.value_head, stage.gates + unit.records * Layout::kGateWidth,
                         unit.tokens, thread, [&](int token, int channel, float decay) {
                           if (!unit.owns_gate_row) return;
                           unit.gate_out[ring_row(token) * Layout::kGateWidth + channel] = decay;
                         });
  if (unit.owns_key_row) {
    constexpr int kPieces = kKeyDim * sizeof(bf16) / sizeof(uint4);
    for (int i = thread; i < unit.tokens * kPieces; i += Layout::kThreads) {
      const int row = i / kPieces, column = i % kPieces * 8;
      const int at = Layout::kSwizzled ? swizzled<kKeyDim>(unit.records + row, column)
                                       : (unit.records + row) * kKeyDim + column;
      *reinterpret_cast<uint4*>(unit.key_out + ring_row(row) * kKeyDim + column) =
          *reinterpret_cast<const uint4*>(stage.keys + at);
    }
  }
}

// GDN with bf16 states: the corrections of this warp's rows from the stage to the ring, when all
// are there. All lanes.
template <class Layout>
__device__ __forceinline__ void append_corrections(const StepArgs& args, const Unit& unit,
                                                   const typename Layout::Stage& stage, int warp) {
  constexpr int kPieces = Layout::kRowsPerWarp / 8;
  const int column = warp * Layout::kRowsPerWarp + ptx::lane() % kPieces * 8;
  bf16* const ring = static_cast<bf16*>(unit.correction_out) + column;
  const bf16* const staged = stage.corrections + unit.records * kValueDim + column;
#pragma unroll 1
  for (int i = ptx::lane() / kPieces; i < unit.tokens; i += 32 / kPieces) {
    const int row = (unit.append_row + i) & (args.ring_rows - 1);
    *reinterpret_cast<uint4*>(ring + row * kValueDim) =
        *reinterpret_cast<const uint4*>(staged + i * kValueDim);
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
            stage.q,
            stage.v,
            stage.beta,
            first_token,
            first_token,
            second ? 0 : history,
            second ? tokens - count : count,
            second ? (count + 3) & ~3 : 0};
  }
};

// Every token's factors and coefficients, the tokens dealt to the warps. Between two group
// barriers.
template <class Layout>
__device__ __forceinline__ void window_coefficients(const StepArgs& args, const Unit& unit,
                                                    const Window<Layout>& window,
                                                    typename Layout::Stage& stage,
                                                    typename Layout::Scratch& scratch, int warp) {
  each_token<Layout, Layout::kWarps>(window.tokens, warp, [&](int token, bool exists) {
    const Segment<Layout> segment = window.segment(stage, token >= window.count);
    token_coefficients(
        args, segment, token - segment.first_token, exists, scratch, [&](float key_norm) {
          if (!unit.owns_key_row) return;
          unit.key_scale_out[(unit.append_row + token) & (args.ring_rows - 1)] = key_norm;
        });
  });
}

// All threads of a group; false for a null row.
template <class Layout>
__device__ __forceinline__ bool window_unit(const StepArgs& args, const Unit& unit,
                                            typename Layout::Stage& stage, uint64_t* empty,
                                            const GroupState<Layout>& arriving,
                                            typename Layout::Scratch& scratch, int warp,
                                            int group_barrier) {
  const int lane = ptx::lane(), block = args.fold_block;
  if (unit.kind == UnitKind::null_row) {
    if (lane < Layout::kRowsPerWarp) {
      const int value = warp * Layout::kRowsPerWarp + lane;
#pragma unroll 1
      for (int i = 0; i < unit.tokens; ++i) {
        store_output<Layout>(args, unit, i * args.value_heads * kValueDim + value, 0.0f);
      }
    }
    if constexpr (Layout::kStatesApart) {
      arriving.wait();
      release(arriving.empty);
    }
    release(empty);
    return false;
  }
  const int first = unit.fold ? block : 0;
  const int history = unit.records - first;
  const int count = min(unit.tokens, block - history);
  const Window<Layout> window{first, history, count, unit.tokens, block};
  const bool crosses = count < unit.tokens;

  // GDN: the last warp has the tokens' decays, the first ones mostly the products.
  const int thread = warp * 32 + lane;
  append_window<Layout>(args, unit, stage,
                        Layout::kKda ? thread : (thread + 32) % Layout::kThreads);
  if constexpr (kSharesChannels<Layout>) ptx::sync_group<Layout::kThreads>(group_barrier);
  int tiles = 0;
#pragma unroll 1
  for (int part = 0; part <= (crosses ? 1 : 0); ++part) {
    const Segment<Layout> segment = window.segment(stage, part == 1);
    tiles = window_gram(segment, tiles, scratch, warp);
    if constexpr (Layout::kKda) window_channels(segment, scratch, warp);
  }
  ptx::sync_group<Layout::kThreads>(group_barrier);
  window_coefficients(args, unit, window, stage, scratch, warp);
  ptx::sync_group<Layout::kThreads>(group_barrier);

  bool has_state = unit.has_state != 0;
  StateRows<Layout> state;
  if constexpr (Layout::kStatesApart) {
    arriving.wait();
    state = load_state<Layout>(arriving.rows, warp, has_state);
    release(arriving.empty);
  } else if constexpr (Layout::kSwizzled) {
    state = load_state<Layout>(stage.state, warp, has_state);
  }
  const float* rows = nullptr;  // in passes: where the state is
  if constexpr (Layout::kPasses) rows = has_state ? static_cast<const float*>(unit.state) : nullptr;
#pragma unroll 1
  for (int part = 0; part <= (crosses ? 1 : 0); ++part) {
    const Segment<Layout> segment = window.segment(stage, part == 1);
    if constexpr (Layout::kPasses) {
      const bool folds = part == 1 || unit.fold != 0;
      float* const out = part == 0 && folds ? static_cast<float*>(unit.state_out) : nullptr;
      has_state = has_state || folds;
      if (has_state) {
        pass_with_fold(segment, records_from<Layout>(stage, part == 1 ? first : 0),
                       folds ? block : 0, rows, out, scratch, warp, group_barrier);
      }
      if (out != nullptr) rows = out;
    } else if (part == 1 || unit.fold != 0) {
      const StagedRecords<Layout> folded = records_from<Layout>(stage, part == 1 ? first : 0);
      void* const out = part == 1 ? nullptr : unit.state_out;
      if constexpr (Layout::kSwizzled) {
        fold_in_registers<Layout>(folded, block, scratch, state, out, warp, group_barrier);
      } else {
        if (part == 1) {
          // The stored state may still be on its way out of the stage, and what the fold before
          // this one has exchanged may still be read.
          if (lane == 0) ptx::wait_for_stores_to_read();
          ptx::sync_group<Layout::kThreads>(group_barrier);
        }
        fold_in_stage<Layout>(folded, unit.first_value, stage, scratch, block, has_state, out, warp,
                              group_barrier);
      }
      has_state = true;
    }
    if constexpr (Layout::kProductsAhead && !Layout::kPasses) {
      if (has_state) segment_products(stage, segment, scratch, warp);
    } else if constexpr (!Layout::kSwizzled && !Layout::kPasses) {
      state = load_state<Layout>(stage.state, warp, has_state);
    }
    RowOutput<Layout> output(args, unit, segment.first_token, warp);
    evaluate_segment(segment, unit.first_value, state, has_state, scratch,
                     Layout::kKda ? segment.first_token : 0, warp,
                     [&](bool stores_d, typename Layout::State d, bool stores_output, float o) {
                       output.next(stores_d, d, stores_output, o);
                     });
  }
  // The next unit overwrites what the warps have exchanged.
  if constexpr (Layout::kKda) ptx::sync_group<Layout::kThreads>(group_barrier);
  if constexpr (Layout::kSwizzled) append_corrections<Layout>(args, unit, stage, warp);
  if constexpr (Layout::kStatesApart) {
    release(empty);
  } else {
    ptx::fence_before_bulk();
    release_written(empty);
  }
  return true;
}

template <class Layout>
__device__ __forceinline__ void window_block(const StepArgs& args, unsigned char* shared,
                                             int stages, int groups) {
  const Pipeline<Layout> pipeline(shared, stages, groups);
  int parity = 0;
  run_units<Layout>(WindowUnits<Layout>{args}, shared, stages, groups,
                    [&](const Unit& unit, typename Layout::Stage& stage, uint64_t* empty,
                        typename Layout::Scratch& scratch, int, int warp, int group_barrier) {
                      const GroupState<Layout> arriving =
                          pipeline.state_of(group_barrier - 1, parity);
                      parity ^= 1;
                      return window_unit<Layout>(args, unit, stage, empty, arriving, scratch, warp,
                                                 group_barrier);
                    });
}

}  // namespace replayssm::cuda
