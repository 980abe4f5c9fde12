// What lies in shared memory in a chunk_prefill: blocks of positions, one being evaluated while
// another is copied, and either the state of some value rows of one head with a window's scratch,
// or, where warps keep the state in registers, a scratch for every segment that is prepared ahead.
#pragma once

#include "ops/cuda/window_layout.h"

namespace replayssm::cuda {

inline constexpr int kChunkSegment = 16;  // most tokens evaluated together

// kRecordTile: a fold block, 16 (also for smaller ones) or 32.
template <GateKind kGateKind, class StateType, int kRecordTile, int kUnitRows>
struct ChunkLayout : WindowLayout<kGateKind, StateType, kRecordTile, kUnitRows, kChunkSegment> {
  using Window = WindowLayout<kGateKind, StateType, kRecordTile, kUnitRows, kChunkSegment>;
  static constexpr bool kRepresentative = true;
  static_assert(!Window::kSwizzled);
  static constexpr int kChunkThreads = Window::kThreads + 32;
  static constexpr int kBlocks = 2;  // in shared memory

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
    Block blocks[kBlocks];
    typename Window::Scratch scratch;
    std::uint64_t full[kBlocks], empty[kBlocks];
  };

  // `stages` and `groups` as a plan has them: the blocks, and one.
  static constexpr std::size_t bytes(int, int) { return sizeof(Shared); }
};

// GDN: kWarps warps walk the chunk with their rows of the state in registers, and kHelpers warps
// ahead of them compute, block by block, what does not depend on the state.
template <class StateType, int kRecordTile, int kUnitRows>
struct TiledChunkLayout
    : WindowLayout<GateKind::gdn, StateType, kRecordTile, kUnitRows, kChunkSegment, true> {
  using Window =
      WindowLayout<GateKind::gdn, StateType, kRecordTile, kUnitRows, kChunkSegment, true>;
  static constexpr bool kRepresentative = true;
  static constexpr int kHelpers = kUnitRows == 64 ? 8 : 4;
  // Four warps in the producer's place, of which one copies, so that the registers can be dealt out
  // anew: those of four warps change together.
  static constexpr int kChunkThreads = Window::kThreads + 32 * kHelpers + 128;
  static constexpr int kWalkerRegisters = kUnitRows == 64 ? 232 : 168;
  static constexpr int kHelperRegisters = kUnitRows == 64 ? 112 : 120;
  static constexpr int kProducerRegisters = 56;
  static_assert(Window::kThreads * kWalkerRegisters + 32 * kHelpers * kHelperRegisters +
                    128 * kProducerRegisters <=
                65536);
  static constexpr int kSegments = (kRecordTile + kChunkSegment - 1) / kChunkSegment;  // of a block
  static constexpr int kBlocks = kRecordTile <= 16 ? 4 : 3;  // in shared memory

  // As ChunkLayout's, in swizzled rows; and what the helpers make of it, per segment. Weights,
  // decay and fold_keys of the block's fold are in the first one.
  struct Block {
    alignas(128) bf16 keys[kRecordTile * kKeyDim];
    alignas(128) StateType corrections[kRecordTile * kValueDim];  // the unit's columns only
    alignas(128) bf16 q[kRecordTile * kKeyDim];
    alignas(128) bf16 v[kRecordTile * kUnitRows];
    float gates[kRecordTile];
    float key_scales[kRecordTile];
    float beta[kRecordTile];
    typename Window::Scratch segments[kSegments];
  };
  struct Shared {
    Block blocks[kBlocks];
    std::uint64_t full[kBlocks], ready[kBlocks], empty[kBlocks];
  };

  static constexpr std::size_t bytes(int, int) { return sizeof(Shared); }
};

// The same for KDA, with a fold block of 16 or less: the helpers also do everything that runs over
// key channels (chunk_channels.cuh).
template <int kUnitRows>
struct ChannelChunkLayout : WindowLayout<GateKind::kda, bf16, 16, kUnitRows, kChunkSegment, true> {
  using Window = WindowLayout<GateKind::kda, bf16, 16, kUnitRows, kChunkSegment, true>;
  static constexpr bool kRepresentative = true;
  static constexpr int kHelpers = 8;
  // Four warps in the producer's place, of which one copies, so that the registers can be dealt out
  // anew: those of four warps change together.
  static constexpr int kChunkThreads = Window::kThreads + 32 * kHelpers + 128;
  static constexpr int kWalkerRegisters = kUnitRows == 64 ? 168 : 112;
  static constexpr int kHelperRegisters = kUnitRows == 64 ? 144 : 104;
  static constexpr int kProducerRegisters = kUnitRows == 64 ? 56 : 48;
  static_assert(Window::kThreads * kWalkerRegisters + 32 * kHelpers * kHelperRegisters +
                    128 * kProducerRegisters <=
                65536);
  static constexpr int kBlocks = 3;  // in shared memory

  // What the helpers make of a block.
  struct Scratch {
    // Products of each token with itself.
    float key_key[kChunkSegment], query_query[kChunkSegment], key_query[kChunkSegment];
    float partial[kKeyDim / 32 * kChunkSegment * 2 * 16];  // as WindowLayout's
    alignas(16) typename Window::Exchange exchange[kChunkSegment];
    alignas(16) float decay[kKeyDim];  // over the block, of its fold
    // The fold's decayed keys, high and low parts; the pitch keeps what eight lanes write together
    // in different banks.
    alignas(16) std::uint32_t fold_keys[kKeyDim / 8][128 + 4];
    // [record][column][key, query]
    alignas(16) float coefficients[(16 + Window::kZeroRecords) * Window::kCoefficientPitch];
    alignas(16) float factors[Window::kFactors][Window::kColumns];
  };
  struct Block {
    alignas(128) bf16 keys[16 * kKeyDim];
    alignas(128) bf16 corrections[16 * kValueDim];  // the unit's columns only
    alignas(128) bf16 q[16 * kKeyDim];
    alignas(128) bf16 v[16 * kUnitRows];
    alignas(128) float gates[16 * kKeyDim];
    float key_scales[16];
    float beta[16];
    Scratch segments[1];
  };
  // Of one helper: [key, query][record][lane], a pitch with which eight lanes read eight rows from
  // different banks.
  struct PairProducts {
    alignas(16) float rows[2 * 16][32 + 4];
  };
  struct Shared {
    Block blocks[kBlocks];
    PairProducts products[kHelpers];
    std::uint64_t full[kBlocks], ready[kBlocks], empty[kBlocks];
  };

  static constexpr std::size_t bytes(int, int) { return sizeof(Shared); }
};

}  // namespace replayssm::cuda
