// The producer warp: walks this block's units, waits for a free stage, describes the unit in it and
// starts the copies of its state, live records and inputs.
#pragma once

#include "ops/cuda/numbers.cuh"
#include "ops/cuda/stage_layout.h"
#include "ops/cuda/step_args.h"

namespace replayssm::cuda {

// A block's stages and the barriers that pass them between producer and consumers.
template <class Layout>
struct Pipeline {
  typename Layout::Stage* stages;
  typename Layout::Scratch* scratch;
  uint64_t* full;
  uint64_t* empty;
  int stage_count;
  int groups;

  __device__ Pipeline(unsigned char* shared, int stage_count_, int groups_)
      : stage_count(stage_count_), groups(groups_) {
    stages = reinterpret_cast<typename Layout::Stage*>(shared);
    shared += sizeof(typename Layout::Stage) * static_cast<unsigned>(stage_count);
    scratch = reinterpret_cast<typename Layout::Scratch*>(shared);
    shared += sizeof(typename Layout::Scratch) * static_cast<unsigned>(groups);
    full = reinterpret_cast<uint64_t*>(shared);
    empty = full + stage_count;
  }

  // All threads; ends with a block barrier.
  __device__ void init() {
    if (ptx::thread() == 0) {
      for (int i = 0; i < stage_count; ++i) {
        ptx::barrier_init(full + i, 1 + 32);  // the announcement, and 32 lanes' plain copies
        ptx::barrier_init(empty + i, kWarpsPerGroup);
      }
      ptx::barrier_init_fence();
    }
    ptx::sync_block();
  }
};

// The five numbers that decide what a unit reads and writes.
struct Entry {
  int row, depth, checkpoint, source, destination;
};

__device__ __forceinline__ Entry broadcast(const Entry& entry, int lane) {
  return {ptx::shuffle(entry.row, lane), ptx::shuffle(entry.depth, lane),
          ptx::shuffle(entry.checkpoint, lane), ptx::shuffle(entry.source, lane),
          ptx::shuffle(entry.destination, lane)};
}

// Where one value head's ring lies.
template <class State>
struct HeadRing {
  const bf16* keys;
  const float* key_scales;
  const State* corrections;
  const float* gates;
};

template <class Layout>
__device__ __forceinline__ HeadRing<typename Layout::State> head_ring(const RingMemory& ring, int row,
                                                                      int key_heads, int value_heads,
                                                                      int value_head, int ring_rows) {
  using State = typename Layout::State;
  const int key_head = value_head / (value_heads / key_heads);
  const int64_t key_ring = (static_cast<int64_t>(row) * key_heads + key_head) * ring_rows;
  const int64_t value_ring = (static_cast<int64_t>(row) * value_heads + value_head) * ring_rows;
  return {ring.keys + key_ring * kKeyDim, ring.key_scales + key_ring,
          static_cast<const State*>(ring.corrections) + value_ring * kValueDim,
          ring.gates + value_ring * Layout::kGateWidth};
}

// Bytes of bulk copies that copy_records() will start.
template <class Layout>
__device__ __forceinline__ uint32_t record_bytes(int records) {
  const uint32_t one = kKeyDim * sizeof(bf16) + Layout::kRows * sizeof(typename Layout::State) +
                       (Layout::kKda ? kKeyDim * sizeof(float) : 0);
  return static_cast<uint32_t>(records) * one;
}

// Copies the records of ring rows first_row, first_row + 1, .. (modulo ring_rows) to stage records
// 0 .. records - 1, for the value rows from first_value on. Gates and key scales of the stage's
// other records become zero; their other numbers are whatever was there.
template <class Layout>
__device__ __forceinline__ void copy_records(typename Layout::Stage& stage,
                                             const HeadRing<typename Layout::State>& ring,
                                             int first_row, int records, int ring_rows,
                                             int first_value, uint64_t* full) {
  using State = typename Layout::State;
  for (int done = 0; done < records;) {
    const int row = (first_row + done) & (ring_rows - 1);
    const int rows = min(records - done, ring_rows - row);  // up to the ring's end
    const uint32_t count = static_cast<uint32_t>(rows);
    ptx::copy_block(stage.keys + done * kKeyDim, ring.keys + row * kKeyDim,
                    count * kKeyDim * sizeof(bf16), full, 1);
    if constexpr (Layout::kRows == kValueDim) {
      ptx::copy_block(stage.corrections + done * kValueDim, ring.corrections + row * kValueDim,
                      count * kValueDim * sizeof(State), full, 2);
    } else {
      ptx::copy_rows(stage.corrections + done * Layout::kRows, Layout::kRows * sizeof(State),
                     ring.corrections + row * kValueDim + first_value, kValueDim * sizeof(State),
                     Layout::kRows * sizeof(State), rows, full);
    }
    if constexpr (Layout::kKda) {
      ptx::copy_block(stage.gates + done * kKeyDim, ring.gates + row * kKeyDim,
                      count * kKeyDim * sizeof(float), full, 3);
    }
    done += rows;
  }
  for (int j = ptx::lane(); j < Layout::kRecords; j += 32) {
    const int row = (first_row + j) & (ring_rows - 1);
    ptx::copy_float(stage.key_scales + j, ring.key_scales + row, j < records);
    if constexpr (!Layout::kKda) ptx::copy_float(stage.gates + j, ring.gates + row, j < records);
  }
}

// Units of packed_step and window_step.
template <class Layout>
struct StepUnits {
  const StepArgs& args;

  __device__ int count() const { return args.batch.entries * args.value_heads * Layout::kParts; }

  __device__ Entry load(int unit) const {
    const int row = args.batch.row[unit / (args.value_heads * Layout::kParts)];
    if (row < 0) return {-1, 0, 0, -1, -1};
    return {row, args.batch.committed[row], args.batch.checkpoint[row], args.batch.base[row],
            args.batch.home[row]};
  }

  // All lanes of the producer warp.
  __device__ void fill(int unit, const Entry& entry, typename Layout::Stage& stage,
                       uint64_t* full) const {
    using State = typename Layout::State;
    const int first_value = unit % Layout::kParts * Layout::kRows;
    const int value_head = unit / Layout::kParts % args.value_heads;
    const int token = unit / Layout::kParts / args.value_heads;
    const int group = args.value_heads / args.key_heads;
    const int key_head = value_head / group;
    const int64_t value_token = static_cast<int64_t>(token) * args.value_heads + value_head;
    const bool live = entry.source >= 0;
    constexpr bool kPacked = Layout::kRecords == 0;
    const int records = kPacked ? 0 : entry.depth - entry.checkpoint;
    const bool fold = !kPacked && records >= args.fold_block;
    const bool has_state = live && (kPacked ? entry.depth : entry.checkpoint) > 0;
    const int64_t in_slot = (static_cast<int64_t>(value_head) * kValueDim + first_value) * kKeyDim;
    State* const states = static_cast<State*>(args.state.data);

    if (ptx::lane() == 0) {
      Unit& u = stage.unit;
      u.kind = live ? UnitKind::live : UnitKind::null_row;
      u.records = records;
      u.fold = fold;
      u.has_state = has_state;
      u.value_head = value_head;
      u.owns_key_row = first_value == 0 && value_head % group == 0;
      u.owns_gate_row = first_value == 0;
      u.out = static_cast<char*>(args.out) +
              (value_token * kValueDim + first_value) * (args.out_f32 ? 4 : 2);
      if (live) {
        u.state_out = states + entry.destination * args.state.slot_stride + in_slot;
        if constexpr (!kPacked) {
          const int append = entry.depth & (args.ring_rows - 1);
          const int64_t key_row =
              (static_cast<int64_t>(entry.row) * args.key_heads + key_head) * args.ring_rows + append;
          const int64_t value_row =
              (static_cast<int64_t>(entry.row) * args.value_heads + value_head) * args.ring_rows +
              append;
          u.correction_out =
              static_cast<State*>(args.ring.corrections) + value_row * kValueDim + first_value;
          u.key_out = args.ring.keys + key_row * kKeyDim;
          u.key_scale_out = args.ring.key_scales + key_row;
          u.gate_out = args.ring.gates + value_row * Layout::kGateWidth;
        }
      }
    }
    uint32_t bytes = 0;
    if (live) {
      bytes = (has_state ? sizeof(stage.state) : 0) + sizeof(stage.q) + sizeof(stage.k) +
              sizeof(stage.v) + (Layout::kKda ? sizeof(stage.gate) : 0) +
              (kPacked ? 0 : record_bytes<Layout>(records));
    }
    if (ptx::lane() == 0) ptx::barrier_arrive_expect(full, bytes);
    ptx::sync_warp();
    if (live) {
      if (has_state) {
        ptx::copy_block(stage.state, states + entry.source * args.state.slot_stride + in_slot,
                        sizeof(stage.state), full, 0);
      }
      if constexpr (!kPacked) {
        copy_records<Layout>(stage,
                             head_ring<Layout>(args.ring, entry.row, args.key_heads,
                                               args.value_heads, value_head, args.ring_rows),
                             entry.checkpoint & (args.ring_rows - 1), records, args.ring_rows,
                             first_value, full);
      }
      const bf16* const x = args.qkv + token * args.token_stride;
      const int keys_at = args.key_heads * kKeyDim;
      ptx::copy_block(stage.q, x + key_head * kKeyDim, sizeof(stage.q), full, 4);
      ptx::copy_block(stage.k, x + keys_at + key_head * kKeyDim, sizeof(stage.k), full, 5);
      ptx::copy_block(stage.v, x + 2 * keys_at + value_head * kValueDim + first_value,
                      sizeof(stage.v), full, 6);
      if constexpr (Layout::kKda) {
        ptx::copy_block(stage.gate, args.gate + value_token * kKeyDim, sizeof(stage.gate), full, 7);
      } else {
        if (ptx::lane() == 0) ptx::copy_float(stage.gate, args.gate + value_token, true);
      }
      if (ptx::lane() == 0) ptx::copy_float(&stage.beta, args.beta + value_token, true);
    }
    ptx::copies_arrive(full);
  }
};

// Deals unit i, i + blocks, .. to block i. Each lane looks up one of the next 32 units' rows, so
// that the two dependent loads of a lookup are waited for once in 32 units. After the last unit
// every group gets an end mark.
template <class Layout, class Units>
__device__ void produce(const Units& units, const Pipeline<Layout>& pipeline) {
  ptx::wait_for_previous_launch();
  const int count = units.count();
  int stage = 0, parity = 1;
  auto next_free = [&]() {
    ptx::barrier_wait(pipeline.empty + stage, parity);
  };
  auto advance = [&]() {
    if (++stage == pipeline.stage_count) {
      stage = 0;
      parity ^= 1;
    }
  };
  for (int first = ptx::block(); first < count; first += 32 * ptx::blocks()) {
    const int mine = first + ptx::lane() * ptx::blocks();
    Entry looked_up{};
    if (mine < count) looked_up = units.load(mine);
    for (int i = 0; i < 32; ++i) {
      const int unit = first + i * ptx::blocks();
      if (unit >= count) break;
      const Entry entry = broadcast(looked_up, i);
      next_free();
      units.fill(unit, entry, pipeline.stages[stage], pipeline.full + stage);
      advance();
    }
  }
  for (int i = 0; i < pipeline.groups; ++i) {
    next_free();
    if (ptx::lane() == 0) {
      pipeline.stages[stage].unit.kind = UnitKind::end;
      ptx::barrier_arrive_expect(pipeline.full + stage, 0);
    }
    ptx::copies_arrive(pipeline.full + stage);
    advance();
  }
}

// A consumer group's loop over its units: stage group, group + groups, .. until the end mark.
// consume(stage, empty, turn) is called by all threads of the group, must not touch the stage after it
// has called release(), and says whether the group exchanged anything: `turn` alternates between the
// two exchange buffers, and a unit without exchange has no barrier to keep the warps together.
template <class Layout, class Consume>
__device__ void consume_units(const Pipeline<Layout>& pipeline, int group, Consume&& consume) {
  int stage = group, parity = 0, turn = 0;
  while (true) {
    while (stage >= pipeline.stage_count) {
      stage -= pipeline.stage_count;
      parity ^= 1;
    }
    ptx::barrier_wait(pipeline.full + stage, parity);
    if (pipeline.stages[stage].unit.kind == UnitKind::end) return;
    if (consume(pipeline.stages[stage], pipeline.empty + stage, turn)) turn ^= 1;
    stage += pipeline.groups;
  }
}

// One lane of each warp hands the stage back once the warp is done with it.
template <class Layout>
__device__ __forceinline__ void release(uint64_t* empty, bool overwritten) {
  if (overwritten) ptx::fence_before_refill();
  ptx::sync_warp();
  if (ptx::lane() == 0) ptx::barrier_arrive(empty);
}

}  // namespace replayssm::cuda
