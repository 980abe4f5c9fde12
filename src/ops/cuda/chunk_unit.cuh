// What a thread block does in chunk_prefill with its unit, some value rows of one head of one row:
// it walks the row's records and tokens from the checkpoint on, block of positions by block. The
// state stays on chip and is rounded where a block ends, as in decode; a token's sums are
// those of a window. A warp for every 16 rows evaluates, one more copies the next block; all but
// KDA with fp32 states or L = 32 has helpers between them, see TiledChunkLayout and
// ChannelChunkLayout.
#pragma once

#include "ops/cuda/chunk_channels.cuh"
#include "ops/cuda/chunk_layout.h"
#include "ops/cuda/segment.cuh"
#include "ops/cuda/window_producer.cuh"

namespace replayssm::cuda {

// One block of positions of a unit: records of the ring, then tokens; both may be none.
struct ChunkBlock {
  int first;    // position of its first, after the checkpoint
  int records;  // of the ring
  int end;      // records and tokens

  __device__ __forceinline__ ChunkBlock(const Unit& unit, int index, int fold_block)
      : first(index * fold_block),
        records(min(max(unit.records - first, 0), fold_block)),
        end(min(unit.records + unit.tokens - first, fold_block)) {}
  // The token at a position of the block, among the row's.
  __device__ __forceinline__ int token(const Unit& unit, int at) const {
    return first + at - unit.records;
  }
};

// Blocks of a unit. All but the last are folded.
__device__ __forceinline__ int chunk_blocks(const Unit& unit, int fold_block) {
  return (unit.records + unit.tokens + fold_block - 1) / fold_block;
}

// Copies kColumns columns, from `first_column` on, of `rows` rows from row_at(i) to rows first,
// first + 1, .. of `to`, which are kPitch long, each piece of 16 bytes to its place (swizzled). All
// lanes.
template <int kPitch, int kColumns = kPitch, class T, class RowAt>
__device__ __forceinline__ void copy_swizzled(T* to, int first, int rows, RowAt&& row_at,
                                              int first_column = 0) {
  constexpr int kElements = 16 / sizeof(T), kPieces = kColumns / kElements;
  for (int i = ptx::lane(); i < rows * kPieces; i += 32) {
    const int row = i / kPieces, column = first_column + i % kPieces * kElements;
    ptx::copy_piece(to + swizzled<kPitch, T>(first + row, column), row_at(row) + column);
  }
}

// Starts the copies of one block. All lanes of the producer warp.
template <class Layout>
__device__ __forceinline__ void copy_chunk_block(const StepArgs& args, const Unit& unit,
                                                 const ChunkBlock& at,
                                                 typename Layout::Block& block) {
  using State = typename Layout::State;
  const int heads = args.value_heads, records = at.records, tokens = at.end - at.records;
  const auto ring_row = [&](int i) {
    return (unit.first_row + at.first + i) & (args.ring_rows - 1);
  };
  const int64_t first_token = at.token(unit, records);
  const auto ring_keys = [&](int i) { return unit.keys + ring_row(i) * kKeyDim; };
  const auto ring_corrections = [&](int i) {
    return static_cast<const State*>(unit.corrections) + ring_row(i) * kValueDim;
  };
  const auto token_rows = [&](const bf16* from) {
    return [=, &args](int i) { return from + (first_token + i) * args.token_stride; };
  };
  if constexpr (Layout::kTiled) {
    copy_swizzled<kKeyDim>(block.keys, 0, records, ring_keys);
    // The rest of the rows another block may be writing.
    copy_swizzled<kValueDim, Layout::kRows>(block.corrections, 0, records, ring_corrections,
                                            unit.first_value);
    copy_swizzled<kKeyDim>(block.keys, records, tokens, token_rows(unit.k));
    copy_swizzled<kKeyDim>(block.q, records, tokens, token_rows(unit.q));
    copy_swizzled<Layout::kRows>(block.v, records, tokens, token_rows(unit.v));
  } else {
    copy_rows<kKeyDim * sizeof(bf16)>(lanes_of_warp(), block.keys, kKeyDim, records, ring_keys);
    copy_rows<Layout::kRows * sizeof(State)>(
        lanes_of_warp(), block.corrections + unit.first_value, kValueDim, records,
        [&](int i) { return ring_corrections(i) + unit.first_value; });
    copy_rows<kKeyDim * sizeof(bf16)>(lanes_of_warp(), block.keys + records * kKeyDim, kKeyDim,
                                      tokens, token_rows(unit.k));
    copy_rows<kKeyDim * sizeof(bf16)>(lanes_of_warp(), block.q + records * kKeyDim, kKeyDim, tokens,
                                      token_rows(unit.q));
    copy_rows<Layout::kRows * sizeof(bf16)>(lanes_of_warp(), block.v + records * Layout::kRows,
                                            Layout::kRows, tokens, token_rows(unit.v));
  }
  if constexpr (Layout::kKda) {
    copy_rows<kKeyDim * sizeof(float)>(lanes_of_warp(), block.gates, kKeyDim, records,
                                       [&](int i) { return unit.gates + ring_row(i) * kKeyDim; });
    copy_rows<kKeyDim * sizeof(float)>(
        lanes_of_warp(), block.gates + records * kKeyDim, kKeyDim, tokens,
        [&](int i) { return unit.gate + (first_token + i) * heads * kKeyDim; });
  }
  static_assert(Layout::kRecords <= 32);  // a lane has a position
  const int i = ptx::lane();
  if (i < records) {
    ptx::copy_float(block.key_scales + i, unit.key_scales + ring_row(i), true);
    if constexpr (!Layout::kKda) {
      ptx::copy_float(block.gates + i, unit.gates + ring_row(i), true);
    }
  } else if (i < at.end) {
    const int64_t from = (first_token + i - records) * heads;
    ptx::copy_float(block.beta + i, unit.beta + from, true);
    if constexpr (!Layout::kKda) ptx::copy_float(block.gates + i, unit.gate + from, true);
  }
}

// The producer warp.
template <class Layout>
__device__ __forceinline__ void produce_chunk(const StepArgs& args, const Unit& unit,
                                              typename Layout::Shared& shared) {
  const int count = chunk_blocks(unit, args.fold_block);
  for (int b = 0; b < count; ++b) {
    const int slot = b % Layout::kBlocks, turn = b / Layout::kBlocks;
    uint64_t* const full = shared.full + slot;
    ptx::barrier_wait(shared.empty + slot, (turn & 1) ^ 1);
    if constexpr (Layout::kTiled) {
      if (ptx::lane() == 0) ptx::barrier_arrive(full);
    } else {
      const bool with_state = b == 0 && unit.has_state != 0;
      if (ptx::lane() == 0) {
        ptx::barrier_arrive_expect(full, with_state ? sizeof(typename Layout::Stage) : 0);
      }
      ptx::sync_warp();
      if (with_state && ptx::copies_blocks()) {
        ptx::copy_block(shared.stage.state, unit.state, sizeof(typename Layout::Stage), full);
      }
    }
    copy_chunk_block<Layout>(args, unit, ChunkBlock(unit, b, args.fold_block), shared.blocks[slot]);
    ptx::copies_arrive(full);
  }
}

// Every token's factors and coefficients, the tokens dealt to kWarps warps.
template <class Layout, int kWarps>
__device__ __forceinline__ void chunk_coefficients(const StepArgs& args,
                                                   const Segment<Layout>& segment,
                                                   typename Layout::Scratch& scratch, int warp) {
  each_token<Layout, kWarps>(segment.count, warp, [&](int token, bool exists) {
    token_coefficients(args, segment, token, exists, scratch, [](float) {});
  });
}

// Evaluates one segment; `next` as in evaluate_segment(). All threads of the group.
template <class Layout, class Next>
__device__ __forceinline__ void evaluate_chunk_segment(const StepArgs& args, const Unit& unit,
                                                       const Segment<Layout>& segment,
                                                       bool has_state,
                                                       typename Layout::Shared& shared, int warp,
                                                       int group_barrier, Next&& next) {
  typename Layout::Scratch& scratch = shared.scratch;
  window_gram(segment, 0, scratch, warp);
  if constexpr (Layout::kKda) window_channels(segment, scratch, warp);
  ptx::sync_group<Layout::kThreads>(group_barrier);
  chunk_coefficients<Layout, Layout::kWarps>(args, segment, scratch, warp);
  ptx::sync_group<Layout::kThreads>(group_barrier);
  const StateRows<Layout> state = load_state<Layout>(shared.stage.state, warp, has_state);
  evaluate_segment(segment, unit.first_value, state, has_state, scratch, 0, warp, next);
  // The next segment overwrites what the warps have exchanged.
  if constexpr (Layout::kKda) ptx::sync_group<Layout::kThreads>(group_barrier);
}

// The segment of a block of positions that begins at position `first`.
template <class Layout>
__device__ __forceinline__ Segment<Layout> chunk_segment(typename Layout::Block& block,
                                                         const ChunkBlock& at, int first) {
  return {{block.keys, block.corrections, block.gates, block.key_scales},
          block.q,
          block.v,
          block.beta,
          first,
          0,
          first,
          min(kChunkSegment, at.end - first),
          0};
}

// The warps that evaluate.
template <class Layout>
__device__ __forceinline__ void consume_chunk(const StepArgs& args, const Unit& unit,
                                              typename Layout::Shared& shared, int warp) {
  using State = typename Layout::State;
  constexpr int kGroupBarrier = 1;
  const int block_size = args.fold_block, count = chunk_blocks(unit, block_size);
  bool has_state = unit.has_state != 0;
  for (int b = 0; b < count; ++b) {
    const int slot = b % Layout::kBlocks, turn = b / Layout::kBlocks;
    const bool last = b + 1 == count;
    const ChunkBlock at(unit, b, block_size);
    ptx::barrier_wait(shared.full + slot, turn & 1);
    typename Layout::Block& block = shared.blocks[slot];
    const StagedRecords<Layout> staged{block.keys, block.corrections, block.gates,
                                       block.key_scales};
    resolve_decays<Layout>(args, unit.value_head, block.gates + at.records * Layout::kGateWidth,
                           at.end - at.records, warp * 32 + ptx::lane(), [](int, int, float) {});
    if constexpr (kSharesChannels<Layout>) ptx::sync_group<Layout::kThreads>(kGroupBarrier);
#pragma unroll 1
    for (int first = at.records; first < at.end; first += Layout::kTokens) {
      const Segment<Layout> segment = chunk_segment<Layout>(block, at, first);
      RowOutput<Layout> output(args, unit, at.token(unit, first), warp);
      evaluate_chunk_segment(args, unit, segment, has_state, shared, warp, kGroupBarrier,
                             [&](bool stores_d, State d, bool stores_output, float o) {
                               output.next(stores_d && last, d, stores_output, o);
                             });
    }
    if (!last) {
      void* const out = b + 2 == count ? unit.state_out : nullptr;
      fold_in_stage<Layout>(staged, unit.first_value, shared.stage, shared.scratch, block_size,
                            has_state, out, warp, kGroupBarrier);
      has_state = true;
    }
    ptx::barrier_arrive(shared.empty + slot);
  }
  if (ptx::lane() == 0) ptx::wait_for_stores_to_read();
}

// The helpers: everything that keys, queries, gates and betas alone say, for the warps that walk.
template <class Layout>
__device__ __forceinline__ void help_chunk(const StepArgs& args, const Unit& unit,
                                           typename Layout::Shared& shared, int warp) {
  constexpr int kHelpers = Layout::kHelpers, kBarrier = 1;
  const int block_size = args.fold_block, count = chunk_blocks(unit, block_size);
  for (int b = 0; b < count; ++b) {
    const int slot = b % Layout::kBlocks, turn = b / Layout::kBlocks;
    const ChunkBlock at(unit, b, block_size);
    typename Layout::Block& block = shared.blocks[slot];
    const StagedRecords<Layout> staged{block.keys, block.corrections, block.gates,
                                       block.key_scales};
    ptx::barrier_wait(shared.full + slot, turn & 1);
    resolve_decays<Layout>(args, unit.value_head, block.gates + at.records, at.end - at.records,
                           warp * 32 + ptx::lane(), [](int, int, float) {});
    const bool folds = b + 1 < count;
    if (folds) {
      write_fold_keys<Layout, kHelpers>(staged, block_size, block.segments[0], warp);
    }
    const auto each_segment = [&](auto&& body) {
#pragma unroll
      for (int s = 0; s < Layout::kSegments; ++s) {
        const int first = at.records + s * kChunkSegment;
        if (first < at.end) body(chunk_segment<Layout>(block, at, first), block.segments[s]);
      }
    };
    each_segment([&](const Segment<Layout>& segment, typename Layout::Scratch& scratch) {
      window_gram<Layout, kHelpers>(segment, 0, scratch, warp);
    });
    each_segment([&](const Segment<Layout>& segment, typename Layout::Scratch& scratch) {
      // The products are there, and the key scales of the segment before this one.
      ptx::sync_group<32 * kHelpers>(kBarrier);
      chunk_coefficients<Layout, kHelpers>(args, segment, scratch, warp);
    });
    if (folds) {
      ptx::sync_group<32 * kHelpers>(kBarrier);  // the tokens' key scales
      if (warp == 0) {
        const HeadDecays<Layout> decays = head_decays<Layout>(staged, block_size, 1.0f);
        typename Layout::Scratch& scratch = block.segments[0];
        if (ptx::lane() < Layout::kRecords) scratch.weights[0][ptx::lane()] = decays.weight[0];
        if (ptx::lane() == 0) scratch.decay[0] = decays.total;
      }
    }
    ptx::barrier_arrive(shared.ready + slot);
  }
}

// The helpers of KDA, whose work over key channels is most of it.
template <class Layout>
__device__ __forceinline__ void help_chunk_of_channels(const StepArgs& args, const Unit& unit,
                                                       typename Layout::Shared& shared, int warp) {
  constexpr int kHelpers = Layout::kHelpers, kBarrier = 1, kQuarters = kKeyDim / 32;
  const int block_size = args.fold_block, count = chunk_blocks(unit, block_size);
  const int quarter = warp % kQuarters, set = warp / kQuarters;
  constexpr int kSets = kHelpers / kQuarters;
  static_assert(kSets == 2);  // behind the sums one folds, the other makes coefficients
  for (int b = 0; b < count; ++b) {
    const int slot = b % Layout::kBlocks, turn = b / Layout::kBlocks;
    const ChunkBlock at(unit, b, block_size);
    typename Layout::Block& block = shared.blocks[slot];
    typename Layout::Scratch& scratch = block.segments[0];
    const Segment<Layout> segment = chunk_segment<Layout>(block, at, at.records);
    ptx::barrier_wait(shared.full + slot, turn & 1);
    resolve_decays<Layout, 32 * kHelpers>(args, unit.value_head, block.gates + at.records * kKeyDim,
                                          segment.count, warp * 32 + ptx::lane(),
                                          [](int, int, float) {});
    window_gram<Layout, kHelpers>(segment, 0, scratch, warp);
    ptx::sync_group<32 * kHelpers>(kBarrier);  // the decays
    ChannelPairs<Layout> pairs(segment, scratch, warp % 2, shared.products[warp]);
#pragma unroll 1
    for (int pair = warp / 2; pair < ChannelPairs<Layout>::kPairs; pair += kHelpers / 2) {
      pairs.evaluate(pair);
    }
    ptx::sync_group<32 * kHelpers>(kBarrier);  // the sums
    if (set == 1) {
      chunk_coefficients<Layout, kQuarters>(args, segment, scratch, quarter);
    } else if (b + 1 < count) {
      write_decayed_fold_keys<Layout>(segment, block_size, scratch, quarter);
    }
    ptx::barrier_arrive(shared.ready + slot);
  }
}

// The warps that walk the chunk, each with sixteen value rows of the state.
template <class Layout>
__device__ __forceinline__ void walk_chunk(const StepArgs& args, const Unit& unit,
                                           typename Layout::Shared& shared, int warp) {
  const int block_size = args.fold_block, count = chunk_blocks(unit, block_size);
  const int row = warp * 16;
  using State = typename Layout::State;
  TileOf<State> state{};
  if (unit.has_state) state = load_tile(static_cast<const State*>(unit.state) + row * kKeyDim);
  for (int b = 0; b < count; ++b) {
    const int slot = b % Layout::kBlocks, turn = b / Layout::kBlocks;
    const bool last = b + 1 == count;
    const ChunkBlock at(unit, b, block_size);
    typename Layout::Block& block = shared.blocks[slot];
    ptx::barrier_wait(shared.ready + slot, turn & 1);
#pragma unroll 1
    for (int s = 0, first = at.records; first < at.end; ++s, first += kChunkSegment) {
      const Segment<Layout> segment = chunk_segment<Layout>(block, at, first);
      const int token = at.token(unit, first);
      TileSums<Layout> sums{};
      if constexpr (Layout::kKda) {
        with_slots(segment, [&]<int kUsed>() {
          decayed_tile_products<kUsed>(state, segment, block.segments[s], sums);
        });
      } else {
        tile_products(state, segment, sums);
      }
      solve_tile(segment, unit.first_value, block.segments[s], warp,
                 TileOutput(args, unit, token, row), sums,
                 [&](int i, int value, const RowPair<State>& d) {
                   if (!last) return;
                   const int ring_row = (unit.append_row + token + i) & (args.ring_rows - 1);
                   d.store(static_cast<State*>(unit.correction_out), ring_row * kValueDim + value);
                 });
    }
    if (!last) {
      const typename Layout::Scratch& scratch = block.segments[0];
      if constexpr (Layout::kKda) {
        fold_decayed_tile<Layout>(block.corrections, block_size, unit.first_value + row, scratch,
                                  state);
      } else {
        fold_tile<Layout>({block.keys, block.corrections, block.gates, block.key_scales},
                          block_size, unit.first_value + row, scratch, scratch.decay[0], state);
      }
      if (b + 2 == count) store_tile(state, static_cast<State*>(unit.state_out) + row * kKeyDim);
    }
    ptx::barrier_arrive(shared.empty + slot);
  }
}

// Block i of the grid has unit i.
template <class Layout>
__device__ __forceinline__ void chunk_block(const StepArgs& args, unsigned char* memory) {
  typename Layout::Shared& shared = *reinterpret_cast<typename Layout::Shared*>(memory);
  if (ptx::thread() == 0) {
    for (int i = 0; i < Layout::kBlocks; ++i) {
      ptx::barrier_init(shared.full + i, 1 + 32);  // the announcement, and 32 lanes' plain copies
      // Every thread hands back what it has read itself, once a block of positions: racecheck does
      // not see that one lane's arrival stands for a warp that has met before.
      ptx::barrier_init(shared.empty + i, Layout::kThreads);
      if constexpr (Layout::kTiled) {
        ptx::barrier_init(shared.ready + i, 32 * Layout::kHelpers);
      }
    }
    ptx::barrier_init_fence();
  }
  ptx::sync_block();
  const WindowUnits<Layout> units{args};
  Lookup at;
  Unit unit;
  units.look_up_row(ptx::block(), at);
  units.look_up_cursor(ptx::block(), at);
  units.describe(ptx::block(), at, unit);
  const int warp = ptx::thread() / 32;
  if (unit.kind == UnitKind::null_row) {
    const int64_t stride = static_cast<int64_t>(args.value_heads) * kValueDim;
    for (int i = ptx::thread(); i < unit.tokens * Layout::kRows; i += ptx::threads()) {
      store_output<Layout>(args, unit, i / Layout::kRows * stride + i % Layout::kRows, 0.0f);
    }
  } else if constexpr (Layout::kTiled) {
    constexpr int kProducer = Layout::kWarps + Layout::kHelpers;
    if (warp < Layout::kWarps) {
      ptx::take_registers<Layout::kWalkerRegisters>();
      walk_chunk<Layout>(args, unit, shared, warp);
    } else if (warp < kProducer) {
      if constexpr (Layout::kKda) {
        ptx::take_registers<Layout::kHelperRegisters>();
        help_chunk_of_channels<Layout>(args, unit, shared, warp - Layout::kWarps);
      } else {
        ptx::give_registers<Layout::kHelperRegisters>();
        help_chunk<Layout>(args, unit, shared, warp - Layout::kWarps);
      }
    } else {
      ptx::give_registers<Layout::kProducerRegisters>();
      if (warp == kProducer) produce_chunk<Layout>(args, unit, shared);
    }
  } else if (warp == Layout::kWarps) {
    produce_chunk<Layout>(args, unit, shared);
  } else {
    consume_chunk<Layout>(args, unit, shared, warp);
  }
}

}  // namespace replayssm::cuda
