// The producers, one warp or several: describe this block's units, wait for a free stage for each
// and start the copies of its state, live records and inputs.
//
// What it costs matters as much as what it moves: a bulk copy takes one lane on the order of a
// hundred cycles to issue, so there are at most four of them a unit and everything small is copied
// in plain pieces; addresses are worked out for eight units at once, one a lane.
#pragma once

#include "ops/cuda/numbers.cuh"
#include "ops/cuda/stage_layout.h"
#include "ops/cuda/step_args.h"

namespace replayssm::cuda {

// How many lanes of a warp arrive where it hands a stage back. One is enough behind __syncwarp, but
// racecheck takes the other lanes' reads for unordered then (bench/lab/racecheck_arrival.cu), so a
// build for that tool lets all of them arrive.
#if defined(REPLAYSSM_CUDA_RACECHECK)
inline constexpr int kReleases = 32;
#else
inline constexpr int kReleases = 1;
#endif

// Where a group's state arrives, if not in the stage: unit after unit of the group's.
template <class Layout>
struct GroupState {
  typename Layout::State* rows;  // [unit rows][K]
  uint64_t* full;
  uint64_t* empty;
  int parity;

  __device__ void wait() const { ptx::barrier_wait(full, parity); }
};

// A block's stages, the table of its units, and the barriers that pass them between producer and
// consumers.
template <class Layout>
struct Pipeline {
  typename Layout::Stage* stages;
  typename Layout::State* states;  // of each group
  typename Layout::Scratch* scratch;
  Unit* units;
  uint64_t* full;
  uint64_t* empty;
  int stage_count;
  int groups;
  // Warps that copy whole units; where states are apart the last one copies only those.
  static constexpr int kCopyingWarps = Layout::kProducerWarps - (Layout::kStatesApart ? 1 : 0);

  __device__ Pipeline(unsigned char* shared, int stage_count_, int groups_)
      : stage_count(stage_count_), groups(groups_) {
    stages = reinterpret_cast<typename Layout::Stage*>(shared);
    shared += sizeof(typename Layout::Stage) * static_cast<unsigned>(stage_count);
    states = reinterpret_cast<typename Layout::State*>(shared);
    if constexpr (Layout::kStatesApart) {
      shared += Layout::kStateBytes * static_cast<unsigned>(groups);
    }
    scratch = reinterpret_cast<typename Layout::Scratch*>(shared);
    shared += sizeof(typename Layout::Scratch) * static_cast<unsigned>(groups);
    units = reinterpret_cast<Unit*>(shared);
    shared += sizeof(Unit) * Layout::kUnitTable;
    full = reinterpret_cast<uint64_t*>(shared);
    empty = full + stage_count;
  }

  __device__ GroupState<Layout> state_of(int group, int parity) const {
    uint64_t* const barriers = full + 2 * (stage_count + group);
    return {states + group * Layout::kRows * kKeyDim, barriers, barriers + 1, parity};
  }

  // All threads; ends with a block barrier.
  __device__ void init() {
    if (ptx::thread() == 0) {
      for (int i = 0; i < stage_count; ++i) {
        // The announcement, and every lane's plain copies.
        ptx::barrier_init(full + i, 1 + 32 * kCopyingWarps);
        ptx::barrier_init(empty + i, kReleases * Layout::kWarps);
      }
      if constexpr (Layout::kStatesApart) {
        for (int i = 0; i < groups; ++i) {
          const GroupState<Layout> state = state_of(i, 0);
          ptx::barrier_init(state.full, ptx::kBulkCopies ? 1 : 1 + 32);
          ptx::barrier_init(state.empty, kReleases * Layout::kWarps);
        }
      }
      ptx::barrier_init_fence();
    }
    ptx::sync_block();
  }
};

// What has to be looked up before a unit can be described: two loads, the second dependent on the
// first. They are started well before they are needed, because the warp stops where it uses them.
struct Lookup {
  int row = -1;
  int depth = 0, checkpoint = 0, source = -1, destination = -1;
  int first_token = 0, tokens = 1;  // windows of several tokens
};

// Points a unit at its row's rings. Offsets of keys are per key head, of the others per value head.
template <class Layout>
__device__ __forceinline__ void describe_rings(Unit& u, const RingMemory& ring, int row,
                                               int key_heads, int value_heads, int ring_rows) {
  using State = typename Layout::State;
  const int key_head = u.value_head / (value_heads / key_heads);
  const int64_t key_ring = (static_cast<int64_t>(row) * key_heads + key_head) * ring_rows;
  const int64_t value_ring = (static_cast<int64_t>(row) * value_heads + u.value_head) * ring_rows;
  u.keys = ring.keys + key_ring * kKeyDim;
  u.key_scales = ring.key_scales + key_ring;
  u.corrections = static_cast<const State*>(ring.corrections) + value_ring * kValueDim;
  u.gates = ring.gates + value_ring * Layout::kGateWidth;
}

// Where a unit stands after a look-up.
__device__ __forceinline__ void look_up_cursor_of(const BatchView& batch, Lookup& l) {
  if (l.row < 0) return;
  l.depth = batch.committed[l.row];
  l.checkpoint = batch.checkpoint[l.row];
  l.source = batch.base[l.row];
  l.destination = batch.home[l.row];
}

// Describes unit `unit` of a step whose tokens begin at l.first_token; what is appended begins at
// ring row 0 of the unit's rings, and append_row is where the first token's record belongs.
// Without records (packed_step) the state has the row's depth.
template <class Layout>
__device__ __forceinline__ void describe_step(const StepArgs& args, int unit, const Lookup& l,
                                              Unit& u) {
  using State = typename Layout::State;
  constexpr bool kPacked = Layout::kRecords == 0;
  const int heads = args.value_heads, group = heads / args.key_heads;
  const int first_value = unit % Layout::kParts * Layout::kRows;
  const int value_head = unit / Layout::kParts % heads;
  const int key_head = value_head / group;
  const int64_t value_token = static_cast<int64_t>(l.first_token) * heads + value_head;
  u.kind = UnitKind::null_row;
  u.records = 0;
  u.fold = 0;
  u.has_state = 0;
  u.value_head = value_head;
  u.first_value = first_value;
  u.tokens = l.tokens;
  u.out = static_cast<char*>(args.out) +
          (value_token * kValueDim + first_value) * (args.out_f32 ? 4 : 2);
  if (l.source < 0) return;
  const int checkpoint = kPacked ? l.depth : l.checkpoint;
  u.kind = UnitKind::live;
  u.records = l.depth - checkpoint;
  u.fold = !kPacked && u.records >= args.fold_block;
  u.has_state = checkpoint > 0;
  u.owns_key_row = first_value == 0 && value_head % group == 0;
  u.owns_gate_row = first_value == 0;
  State* const head_state = static_cast<State*>(args.state.data) +
                            (static_cast<int64_t>(value_head) * kValueDim + first_value) * kKeyDim;
  u.state = head_state + l.source * args.state.slot_stride;
  u.state_out = head_state + l.destination * args.state.slot_stride;
  if constexpr (!kPacked) {
    describe_rings<Layout>(u, args.ring, l.row, args.key_heads, heads, args.ring_rows);
    u.first_row = checkpoint & (args.ring_rows - 1);
    u.append_row = l.depth & (args.ring_rows - 1);
    u.key_out = args.ring.keys + (u.keys - args.ring.keys);
    u.key_scale_out = args.ring.key_scales + (u.key_scales - args.ring.key_scales);
    State* const corrections = static_cast<State*>(args.ring.corrections);
    u.correction_out =
        corrections + (static_cast<const State*>(u.corrections) - corrections) + first_value;
    u.gate_out = args.ring.gates + (u.gates - args.ring.gates);
  }
  const bf16* const x = args.qkv + l.first_token * args.token_stride;
  const int keys_at = args.key_heads * kKeyDim;
  u.q = x + key_head * kKeyDim;
  u.k = u.q + keys_at;
  u.v = x + 2 * keys_at + value_head * kValueDim + first_value;
  u.gate = args.gate + value_token * Layout::kGateWidth;
  u.beta = args.beta + value_token;
}

// The lanes that copy a unit together: this one among all of them.
struct Copiers {
  int index;
  int count;  // a multiple of 32
};
__device__ __forceinline__ Copiers lanes_of_warp() { return {ptx::lane(), 32}; }

// Copies `rows` rows of kBytes bytes from row_at(i) to rows `pitch` elements apart. What row_at
// reads from shared memory, it would read again for every row.
template <int kBytes, class T, class RowAt>
__device__ __forceinline__ void copy_rows(const Copiers& who, T* to, int pitch, int rows,
                                          RowAt&& row_at) {
  constexpr int kPieces = kBytes / 16, kElements = 16 / sizeof(T);
  static_assert(32 % kPieces == 0);
  const int element = who.index % kPieces * kElements;
#pragma unroll 1
  for (int i = who.index / kPieces; i < rows; i += who.count / kPieces) {
    ptx::copy_piece(to + i * pitch + element, row_at(i) + element);
  }
}

// Starts the copies of a live unit's state and records. Records lie at ring rows first_row,
// first_row + 1, .. (modulo ring_rows) and go to stage records 0, 1, ..; gates and key scales of
// the stage's other records become zero (not in windows of several tokens), their other numbers are
// whatever was there. All lanes.
template <class Layout>
__device__ __forceinline__ void copy_state_and_records(const Copiers& who, const Unit& u,
                                                       typename Layout::Stage& stage, int ring_rows,
                                                       uint64_t* full) {
  using State = typename Layout::State;
  const int first_row = u.first_row, records = u.records;
  const bool first_warp = who.index < 32;
  if (first_warp && ptx::copies_blocks()) {
    if (u.has_state) {
      if constexpr (Layout::kStagesState) {
        ptx::copy_block(stage.state, u.state, Layout::kStateBytes, full);
      } else if constexpr (!Layout::kStatesApart) {
        ptx::prefetch_block(u.state, Layout::kStateBytes);
      }
    }
    if constexpr (Layout::kRecords > 0 && !Layout::kSwizzled) {
      for (int done = 0; done < records;) {
        const int row = (first_row + done) & (ring_rows - 1);
        const int rows = min(records - done, ring_rows - row);  // up to the ring's end
        const uint32_t count = static_cast<uint32_t>(rows);
        ptx::copy_block(stage.keys + done * kKeyDim, u.keys + row * kKeyDim,
                        count * static_cast<uint32_t>(kKeyDim * sizeof(bf16)), full);
        ptx::copy_block(stage.corrections + done * kValueDim,
                        static_cast<const State*>(u.corrections) + row * kValueDim,
                        count * static_cast<uint32_t>(kValueDim * sizeof(State)), full);
        if constexpr (Layout::kKda) {
          ptx::copy_block(stage.gates + done * kKeyDim, u.gates + row * kKeyDim,
                          count * static_cast<uint32_t>(kKeyDim * sizeof(float)), full);
        }
        done += rows;
      }
    }
  }
  if constexpr (Layout::kSwizzled) {
    static_assert(kKeyDim == kValueDim);
    const int column = (who.index & 15) * 8;
    const bf16* const keys = u.keys + column;
    const bf16* const corrections = static_cast<const bf16*>(u.corrections) + column;
    // Copies side by side: each that stands alone has three empty instructions before it.
#pragma unroll 1
    for (int i = who.index >> 4; i < records; i += who.count >> 4) {
      const int row = ((first_row + i) & (ring_rows - 1)) * kKeyDim;
      ptx::copy_piece(stage.keys + swizzled<kKeyDim>(i, column), keys + row);
      ptx::copy_piece(stage.corrections + i * kValueDim + column, corrections + row);
    }
  }
  if constexpr (Layout::kRecords > 0) {
    const int touched =
        Layout::kTokens > 1 ? records : Layout::kRecords;  // the rest is the window's
    const float* const key_scales = u.key_scales;
    const float* const gates = u.gates;
#pragma unroll(Layout::kTokens > 1 ? 1 : 4)
    for (int j = who.index; j < touched; j += who.count) {
      const int row = (first_row + j) & (ring_rows - 1);
      ptx::copy_float(stage.key_scales + j, key_scales + row, j < records);
      if constexpr (!Layout::kKda) ptx::copy_float(stage.gates + j, gates + row, j < records);
    }
  }
}

// Bytes of its bulk copies.
template <class Layout>
__device__ __forceinline__ uint32_t block_bytes(const Unit& u) {
  constexpr uint32_t kRecordBytes = kKeyDim * sizeof(bf16) +
                                    kValueDim * sizeof(typename Layout::State) +
                                    (Layout::kKda ? kKeyDim * sizeof(float) : 0);
  const uint32_t records = Layout::kSwizzled ? 0u : static_cast<uint32_t>(u.records);
  return (Layout::kStagesState && u.has_state ? Layout::kStateBytes : 0u) + records * kRecordBytes;
}

// Units of packed_step and window_step.
template <class Layout>
struct StepUnits {
  const StepArgs& args;

  __device__ int count() const { return args.batch.entries * args.value_heads * Layout::kParts; }
  __device__ int ring_rows() const { return args.ring_rows; }
  __device__ bool settled() const { return args.settled != 0; }

  __device__ void look_up_row(int unit, Lookup& l) const {
    l.first_token = unit / (Layout::kParts * args.value_heads);
    l.row = args.batch.row[l.first_token];
  }
  __device__ void look_up_cursor(int, Lookup& l) const { look_up_cursor_of(args.batch, l); }

  // One lane.
  __device__ void describe(int unit, const Lookup& l, Unit& u) const {
    describe_step<Layout>(args, unit, l, u);
    if constexpr (Layout::kRecords > 0) {
      if (u.kind != UnitKind::live) return;
      u.key_out += u.append_row * kKeyDim;
      u.key_scale_out += u.append_row;
      u.correction_out =
          static_cast<typename Layout::State*>(u.correction_out) + u.append_row * kValueDim;
      u.gate_out += u.append_row * Layout::kGateWidth;
    }
  }

  // The one warp: the token's inputs.
  __device__ void copy_inputs(const Copiers&, const Unit& u, typename Layout::Stage& stage) const {
    ptx::copy_small(stage.q, u.q, sizeof(stage.q));
    ptx::copy_small(stage.k, u.k, sizeof(stage.k));
    ptx::copy_small(stage.v, u.v, sizeof(stage.v));
    if constexpr (Layout::kKda) {
      ptx::copy_small(stage.gate, u.gate, sizeof(stage.gate));
    } else {
      if (ptx::lane() == 0) ptx::copy_float(stage.gate, u.gate, true);
    }
    if (ptx::lane() == 0) ptx::copy_float(&stage.beta, u.beta, true);
  }
};

// The next launch may start once everything before this one has ended: what it fetches early was
// written by launches before this one.
__device__ __forceinline__ void wait_then_allow_next() {
  ptx::wait_for_previous_launch();
  ptx::allow_next_launch();
}

// Announces a unit's bulk copies and starts those of its state and records. All lanes that copy it.
template <class Layout, class Units>
__device__ __forceinline__ void fetch_state(const Copiers& who, const Units& units, const Unit& u,
                                            typename Layout::Stage& stage, uint64_t* full) {
  const bool live = u.kind == UnitKind::live;
  if (who.index == 0) {
    ptx::barrier_arrive_expect(full, live ? block_bytes<Layout>(u) : 0u);
  }
  ptx::sync_warp();
  if (live) copy_state_and_records<Layout>(who, u, stage, units.ring_rows(), full);
}

// Starts the copy of the state of this block's unit `i`, as soon as its group has the one before in
// its registers. One warp, which copies all of them.
template <class Layout>
__device__ __forceinline__ void fetch_state_apart(const Unit& u, int i,
                                                  const Pipeline<Layout>& pipeline) {
  const GroupState<Layout> state =
      pipeline.state_of(i % pipeline.groups, i / pipeline.groups % 2 ^ 1);
  ptx::barrier_wait(state.empty, state.parity);
  const bool has_state = u.kind == UnitKind::live && u.has_state != 0;
  constexpr uint32_t kBytes = Layout::kStateBytes;
  if (ptx::lane() == 0) ptx::barrier_arrive_expect(state.full, has_state ? kBytes : 0u);
  ptx::sync_warp();
  if (has_state && ptx::copies_blocks()) {
    ptx::copy_block(state.rows, u.state, kBytes, state.full);
  }
  if constexpr (!ptx::kBulkCopies) ptx::copies_arrive(state.full);
}

// Deals unit i, i + blocks, .. to block i. After the last one every group gets an end mark. The
// first producer warp describes the units. All of them copy each unit, but for the last one where
// it copies the states.
template <class Layout, class Units>
__device__ void produce(const Units& units, const Pipeline<Layout>& pipeline) {
  constexpr int kWarps = Layout::kProducerWarps;
  constexpr int kCopyingWarps = Pipeline<Layout>::kCopyingWarps;
  const int thread = ptx::thread() % (32 * kWarps);
  const bool describes = thread < 32, copies_states = thread / 32 >= kCopyingWarps;
  const Copiers who{thread, 32 * kCopyingWarps};
  const bool settled = units.settled();
  if (!settled) wait_then_allow_next();
  const int count = units.count(), stride = ptx::blocks();
  const int mine = (count - ptx::block() + stride - 1) / stride;
  const int total = mine + pipeline.groups;
  int stage = 0, parity = 1;
  int fetched = 0;  // units whose state is on its way already
  auto unit_at = [&](int i) { return ptx::block() + i * stride; };
  Lookup next;
  int own = ptx::lane();
  if (describes && own < Layout::kUnitBatch && own < mine) {
    units.look_up_row(unit_at(own), next);
    units.look_up_cursor(unit_at(own), next);
  }
  for (int first = 0; first < total; first += Layout::kUnitBatch) {
    Unit* const batch = pipeline.units + first % Layout::kUnitTable;
    if (describes && ptx::lane() < Layout::kUnitBatch && own < total) {
      if (own < mine) {
        units.describe(unit_at(own), next, batch[ptx::lane()]);
      } else {
        batch[ptx::lane()].kind = UnitKind::end;
      }
    }
    if constexpr (kWarps > 1) {
      ptx::sync_group<32 * kWarps>(1 + pipeline.groups);
    } else {
      ptx::sync_warp();
    }
    own += Layout::kUnitBatch;
    next = Lookup{};
    const bool looks_up = describes && ptx::lane() < Layout::kUnitBatch && own < mine;
    if (looks_up) units.look_up_row(unit_at(own), next);
    const int units_here = min(Layout::kUnitBatch, total - first);
    if constexpr (Layout::kStatesApart) {
      if (copies_states) {
        for (int i = 0; i < units_here && first + i < mine; ++i) {
          // The first state of each group has nothing to wait for but the launch before.
          if (settled && first + i == pipeline.groups) wait_then_allow_next();
          fetch_state_apart<Layout>(batch[i], first + i, pipeline);
        }
        continue;
      }
    }
    if (settled && first == 0) {  // fill the stages while the previous launch still runs
      fetched = min(units_here, pipeline.stage_count);
      for (int i = 0; i < fetched; ++i) {
        fetch_state<Layout>(who, units, batch[i], pipeline.stages[i], pipeline.full + i);
      }
      wait_then_allow_next();
    }
    for (int i = 0; i < units_here; ++i) {
      if (i == Layout::kUnitBatch / 2 && looks_up) units.look_up_cursor(unit_at(own), next);
      const Unit& u = batch[i];
      uint64_t* const full = pipeline.full + stage;
      if (first + i >= fetched) {
        ptx::barrier_wait(pipeline.empty + stage, parity);
        fetch_state<Layout>(who, units, u, pipeline.stages[stage], full);
      }
      if (u.kind == UnitKind::live) units.copy_inputs(who, u, pipeline.stages[stage]);
      ptx::copies_arrive(full);
      if (++stage == pipeline.stage_count) {
        stage = 0;
        parity ^= 1;
      }
    }
  }
}

// A consumer group's loop over its units: group, group + groups, .. until the end mark; unit i lies
// in stage i modulo the number of stages. consume(unit, stage, empty, turn) is called by all
// threads of the group, must touch neither unit nor stage after it has released the stage, and says
// whether the group exchanged anything: `turn` alternates between the two exchange buffers, and a
// unit without exchange has no barrier to keep the warps together.
template <class Layout, class Consume>
__device__ void consume_units(const Pipeline<Layout>& pipeline, int group, Consume&& consume) {
  const bool shares_stages = pipeline.stage_count % pipeline.groups != 0;
  int stage = group, parity = 0, turn = 0;
  for (int i = group;; i += pipeline.groups) {
    while (stage >= pipeline.stage_count) {
      stage -= pipeline.stage_count;
      parity ^= 1;
    }
    // The unit before this one in the stage may be another group's that is still on its way; a wait
    // for a phase two ahead would return at once. So that unit's release is waited for first.
    if (shares_stages) ptx::barrier_wait(pipeline.empty + stage, parity ^ 1);
    ptx::barrier_wait(pipeline.full + stage, parity);
    const Unit& unit = pipeline.units[i % Layout::kUnitTable];
    if (unit.kind == UnitKind::end) return;
    if (consume(unit, pipeline.stages[stage], pipeline.empty + stage, turn)) turn ^= 1;
    stage += pipeline.groups;
  }
}

// The body of a kernel: the first kWarps warps for each group consume, those behind them produce.
// What consume_units asks, with the group's scratch and barrier and the warp's place in the group:
// consume(unit, stage, empty, scratch, turn, warp, group_barrier).
template <class Layout, class Units, class Consume>
__device__ __forceinline__ void run_units(const Units& units, unsigned char* shared, int stages,
                                          int groups, Consume&& consume) {
  Pipeline<Layout> pipeline(shared, stages, groups);
  pipeline.init();
  const int warp = ptx::thread() / 32;
  if (warp >= groups * Layout::kWarps) {
    if constexpr (Layout::kProducerWarps > 1) ptx::give_registers<Layout::kProducerRegisters>();
    produce<Layout>(units, pipeline);
    return;
  }
  if constexpr (Layout::kProducerWarps > 1) ptx::take_registers<Layout::kGroupRegisters>();
  const int group = warp / Layout::kWarps, warp_in_group = warp % Layout::kWarps;
  consume_units<Layout>(
      pipeline, group,
      [&](const Unit& unit, typename Layout::Stage& stage, uint64_t* empty, int turn) {
        return consume(unit, stage, empty, pipeline.scratch[group], turn, warp_in_group, 1 + group);
      });
}

// One lane of each warp (kReleases) hands the stage back once the warp is done with it.
__device__ __forceinline__ void release(uint64_t* empty) {
  ptx::sync_warp();
  if (kReleases > 1 || ptx::lane() == 0) ptx::barrier_arrive(empty);
}
// The same after store_rows(), of which lane 0 knows.
__device__ __forceinline__ void release_written(uint64_t* empty) {
  ptx::sync_warp();
  if (ptx::lane() == 0) {
    ptx::wait_for_stores_to_read();
    ptx::barrier_arrive(empty);
  } else if (kReleases > 1) {
    ptx::barrier_arrive(empty);
  }
}

}  // namespace replayssm::cuda
