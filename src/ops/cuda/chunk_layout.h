// What lies in shared memory in a chunk_prefill: the state of some value rows of one head, and two
// blocks of positions, one being evaluated while the other is copied. The scratch is a window's.
#pragma once

#include "ops/cuda/window_layout.h"

namespace replayssm::cuda {

inline constexpr int kChunkSegment = 16;  // most tokens evaluated together
inline constexpr int kChunkBlocks = 2;    // in shared memory
inline constexpr int kChunkThreads = kGroupThreads + 32;

// kRecordTile: a fold block, 16 (also for smaller ones) or 32.
template <GateKind kGateKind, class StateType, int kRecordTile, int kUnitRows>
struct ChunkLayout
    : WindowLayout<kGateKind, StateType, kRecordTile, kUnitRows, kChunkSegment, false> {
  using Window = WindowLayout<kGateKind, StateType, kRecordTile, kUnitRows, kChunkSegment, false>;
  static constexpr bool kRepresentative = true;

  struct Stage {
    alignas(128) StateType state[kUnitRows * kKeyDim];
  };
  // Everything is indexed by the position in the block: first the ring's records, then the tokens,
  // whose gates arrive as log gates and whose scales and corrections are found here.
  struct Block {
    alignas(128) bf16 keys[kRecordTile * kKeyDim];
    alignas(128) StateType corrections[kRecordTile * kValueDim];  // the unit's columns only
    alignas(128) float gates[kRecordTile * Window::kGateWidth];
    alignas(16) bf16 q[kRecordTile * kKeyDim];
    alignas(16) bf16 v[kRecordTile * kUnitRows];
    float key_scales[kRecordTile];
    float beta[kRecordTile];
  };
  struct Shared {
    Stage stage;
    Block blocks[kChunkBlocks];
    typename Window::Scratch scratch;
    std::uint64_t full[kChunkBlocks], empty[kChunkBlocks];
  };

  // `stages` and `groups` as a plan has them: the blocks, and one.
  static constexpr std::size_t bytes(int, int) { return sizeof(Shared); }
};

}  // namespace replayssm::cuda
