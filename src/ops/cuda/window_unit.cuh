// What a consumer group does with one unit of a window_step of several tokens: the fold that may be
// due, then the window in pieces that end where a block of positions ends. Between two pieces the
// finished block is folded in the stage only: its tokens are not committed yet.
#pragma once

#include "ops/cuda/segment.cuh"
#include "ops/cuda/state_tile.cuh"
#include "ops/cuda/window_producer.cuh"

namespace replayssm::cuda {

// The window's log gates in the stage become decays; they and the keys are appended to the ring by
// the unit that owns the row. All threads of a group.
template <class Layout>
__device__ __forceinline__ void append_window(const StepArgs& args, const Unit& unit,
                                              typename Layout::Stage& stage, int thread) {
  const StagedRecords<Layout> window = records_from<Layout>(stage, unit.records);
  const auto ring_row = [&](int token) { return (unit.append_row + token) & (args.ring_rows - 1); };
  resolve_decays<Layout>(args, unit.value_head, window.gates, unit.tokens, thread,
                         [&](int token, int channel, float decay) {
                           if (!unit.owns_gate_row) return;
                           unit.gate_out[ring_row(token) * Layout::kGateWidth + channel] = decay;
                         });
  if (unit.owns_key_row) {
    constexpr int kPieces = kKeyDim * sizeof(bf16) / sizeof(uint4);
    for (int i = thread; i < unit.tokens * kPieces; i += Layout::kThreads) {
      const int token = i / kPieces, column = i % kPieces * 8;
      const int at = Layout::kInRegisters ? swizzled<kKeyDim>(unit.records + token, column)
                                          : (unit.records + token) * kKeyDim + column;
      *reinterpret_cast<uint4*>(unit.key_out + ring_row(token) * kKeyDim + column) =
          *reinterpret_cast<const uint4*>(stage.keys + at);
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
            stage.q,
            stage.v,
            stage.beta,
            first_token,
            first_token,
            second ? 0 : history,
            second ? tokens - count : count,
            second ? (count + 1) & ~1 : 0,
            first + (second ? block : 0)};
  }
};

// Every token's factors and coefficients, the tokens dealt to the warps. Between two group
// barriers.
template <class Layout>
__device__ __forceinline__ void window_coefficients(const StepArgs& args, const Unit& unit,
                                                    const Window<Layout>& window,
                                                    typename Layout::Stage& stage,
                                                    typename Layout::Scratch& scratch, int warp) {
  static_assert(Layout::kTokens % Layout::kWarps == 0);
  const auto in_window = [&](int turn) { return turn * Layout::kWarps + warp; };
  token_coefficients<Layout, Layout::kTokens / Layout::kWarps>(
      args,
      [&](int turn) {
        const int i = min(in_window(turn), window.tokens - 1);
        const Segment<Layout> segment = window.segment(stage, i >= window.count);
        return SegmentToken<Layout>{segment, i - segment.first_token, in_window(turn) == i};
      },
      scratch,
      [&](int turn, float key_norm) {
        if (!unit.owns_key_row) return;
        unit.key_scale_out[(unit.append_row + in_window(turn)) & (args.ring_rows - 1)] = key_norm;
      });
}

// A null row's outputs: zero. All threads of a group.
template <class Layout>
__device__ __forceinline__ void store_zeros(const StepArgs& args, const Unit& unit, int warp) {
  if (ptx::lane() >= Layout::kRowsPerWarp) return;
  const int value = warp * Layout::kRowsPerWarp + ptx::lane();
  for (int i = 0; i < unit.tokens; ++i) {
    store_output<Layout>(args, unit, i * args.value_heads * kValueDim + value, 0.0f);
  }
}

// All threads of a group; false for a null row.
template <class Layout>
__device__ __forceinline__ bool window_unit(const StepArgs& args, const Unit& described,
                                            typename Layout::Stage& stage, uint64_t* empty,
                                            typename Layout::Scratch& scratch, int warp,
                                            int group_barrier) {
  using State = typename Layout::State;
  const Unit unit = described;  // the table's entry may change once the stage is released
  const int lane = ptx::lane(), block = args.fold_block;
  if (unit.kind == UnitKind::null_row) {
    release(empty);
    store_zeros<Layout>(args, unit, warp);
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
    fold_in_stage<Layout>(records_from<Layout>(stage, 0), unit.first_value, stage, scratch, block,
                          has_state, unit.state_out, warp, group_barrier);
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
      fold_in_stage<Layout>(records_from<Layout>(stage, first), unit.first_value, stage, scratch,
                            block, has_state, nullptr, warp, group_barrier);
      has_state = true;
    }
    WindowSums<Layout> sums{};
    if (has_state) {
      window_products<Layout>(stage, segment,
                              scratch.exchange + (Layout::kKda ? segment.first_token : 0), warp,
                              scratch.products[warp], sums);
    }
    evaluate_segment<Layout>(
        segment, unit.first_value, scratch, warp, sums,
        [&](int i, int value, State stored, float o) {
          const int token = segment.first_token + i;
          const int ring_row = (unit.append_row + token) & (args.ring_rows - 1);
          static_cast<State*>(unit.correction_out)[ring_row * kValueDim + value] = stored;
          store_output<Layout>(args, unit, token * args.value_heads * kValueDim + value, o);
        });
  }
  // The next unit overwrites what the warps have exchanged.
  if constexpr (Layout::kKda) ptx::sync_group(group_barrier);
  ptx::fence_before_bulk();
  release_written(empty);
  return true;
}

// A warp's products with a segment's tokens, of the stage's state or of what a fold of `records`
// records makes of it. The folded state goes to folded(tile, its first row).
template <class Layout, class Folded>
__device__ __forceinline__ void staged_products(typename Layout::Stage& stage, bool has_state,
                                                const StagedRecords<Layout>& staged, int records,
                                                int first_value,
                                                const typename Layout::Scratch& scratch, int warp,
                                                const Segment<Layout>& segment,
                                                TileSums<Layout>& sums, Folded&& folded) {
  HeadDecays<Layout> decays{};
  if (records > 0) decays = head_decays<Layout>(staged, records, 1.0f);
#pragma unroll
  for (int m = 0; m < Layout::kTiles; ++m) {
    const int row = (warp * Layout::kTiles + m) * 16;
    StateTile state{};
    if (has_state) state = load_tile(stage.state + row * kKeyDim);
    if (records > 0) {
      fold_tile<Layout>(
          staged, records, first_value + row, scratch, decays.total,
          [&](int record) { return ptx::shuffle(decays.weight[0], record); }, state);
      folded(state, row);
    }
    tile_products(state, m, segment, sums);
  }
}

// The same where warps work in tiles: the state is in registers from a fold to the products, and
// what the fold between two segments makes of it goes nowhere else.
template <class Layout>
__device__ __forceinline__ bool tiled_window_unit(const StepArgs& args, const Unit& unit,
                                                  typename Layout::Stage& stage, uint64_t* empty,
                                                  typename Layout::Scratch& scratch, int warp,
                                                  int group_barrier) {
  using State = typename Layout::State;
  const int block = args.fold_block;
  if (unit.kind == UnitKind::null_row) {
    store_zeros<Layout>(args, unit, warp);
    release(empty);
    return false;
  }
  const bool folds = unit.fold != 0;
  const int first = folds ? block : 0;
  const int history = unit.records - first;
  const int count = min(unit.tokens, block - history);
  const Window<Layout> window{first, history, count, unit.tokens, block};
  const bool crosses = count < unit.tokens;

  append_window<Layout>(args, unit, stage, warp * 32 + ptx::lane());
  if (folds || crosses) {
    write_fold_keys<Layout>(records_from<Layout>(stage, folds ? 0 : first), block, scratch, warp);
  }
  const int tiles = window_gram(window.segment(stage, false), 0, scratch, warp);
  if (crosses) window_gram(window.segment(stage, true), tiles, scratch, warp);
  ptx::sync_group<Layout::kThreads>(group_barrier);
  TileSums<Layout> sums{};
  if (unit.has_state || folds) {
    staged_products(
        stage, unit.has_state != 0, records_from<Layout>(stage, 0), folds ? block : 0,
        unit.first_value, scratch, warp, window.segment(stage, false), sums,
        [&](const StateTile& state, int row) { store_tile(state, stage.state + row * kKeyDim); });
    if (folds) store_rows<Layout>(stage, warp, static_cast<State*>(unit.state_out));
  }
  window_coefficients(args, unit, window, stage, scratch, warp);
  ptx::sync_group<Layout::kThreads>(group_barrier);

#pragma unroll 1
  for (int part = 0;; ++part) {
    const Segment<Layout> segment = window.segment(stage, part == 1);
    solve_tiles(
        segment, unit.first_value, scratch, warp, part == 0 && crosses,
        TileOutput(args, unit, segment.first_token, warp * 16 * Layout::kTiles), sums,
        [&](int i, int value, uint32_t d) {
          const int ring_row = (unit.append_row + segment.first_token + i) & (args.ring_rows - 1);
          store_pair(static_cast<bf16*>(unit.correction_out) + ring_row * kValueDim + value, d);
        });
    if (part == 1 || !crosses) break;
    const StagedRecords<Layout> records = records_from<Layout>(stage, first);
    if (folds) {
      write_fold_keys<Layout>(records, block, scratch, warp);
      ptx::sync_group<Layout::kThreads>(group_barrier);
    }
    staged_products(stage, unit.has_state || folds, records, block, unit.first_value, scratch, warp,
                    window.segment(stage, true), sums, [](const StateTile&, int) {});
  }
  // The next unit overwrites the keys of a fold.
  if (crosses) ptx::sync_group<Layout::kThreads>(group_barrier);
  ptx::fence_before_bulk();
  release_written(empty);
  return true;
}

template <class Layout>
__device__ __forceinline__ void window_block(const StepArgs& args, unsigned char* shared,
                                             int stages, int groups) {
  run_units<Layout>(
      WindowUnits<Layout>{args}, shared, stages, groups,
      [&](const Unit& unit, typename Layout::Stage& stage, uint64_t* empty,
          typename Layout::Scratch& scratch, int, int warp, int group_barrier) {
        if constexpr (Layout::kInRegisters) {
          return tiled_window_unit<Layout>(args, unit, stage, empty, scratch, warp, group_barrier);
        } else {
          return window_unit<Layout>(args, unit, stage, empty, scratch, warp, group_barrier);
        }
      });
}

}  // namespace replayssm::cuda
