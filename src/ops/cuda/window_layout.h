// What lies in a block's shared memory in a window_step of several tokens. As StageLayout, with the
// window's keys, decays and corrections right behind the records of the ring, as the records that
// they become.
#pragma once

#include "ops/cuda/stage_layout.h"

namespace replayssm::cuda {

// kRecordTile: a fold block, 16 (also for 8) or 32. kWindow: the most tokens, 4, 8 or 16.
// kTiles: every warp has one tile of 16 rows of the state. Chunks only, see TiledChunkLayout and
// ChannelChunkLayout.
template <GateKind kGateKind, class StateType, int kRecordTile, int kUnitRows, int kWindow,
          bool kTiles = false>
struct WindowLayout {
  using State = StateType;
  static constexpr GateKind kGate = kGateKind;
  static constexpr bool kKda = kGateKind == GateKind::kda;
  static constexpr int kGateWidth = kKda ? kKeyDim : 1;
  static constexpr int kRecords = kRecordTile;  // most that one fold or evaluation reads
  static constexpr int kSlots = kRecordTile;
  static constexpr int kTokens = kWindow;
  static constexpr bool kRepresentative = kWindow == 8;
  static constexpr int kRows = kUnitRows;
  static constexpr bool kTiled = kTiles;
  // GDN with bf16 states, and tiles: rows of keys and queries are swizzled, in tiles those of
  // values and corrections and decayed inputs too, and the state is folded in registers
  // (state_tile.cuh).
  static constexpr bool kSwizzled =
      kTiles || (kGateKind == GateKind::gdn && sizeof(StateType) == 2);
  // In windows a token's values arrive where its corrections will be.
  static constexpr bool kValuesInPlace = kSwizzled;
  // GDN windows with fp32 states: a segment's products with the state are all made before its
  // tokens are solved. Where there is room for few stages, in one pass from the L2 cache through
  // registers, and a fold on the way.
  static constexpr bool kProductsAhead =
      kGateKind == GateKind::gdn && sizeof(StateType) == 4 && !kTiles;
  static constexpr bool kPasses = kProductsAhead && kWindow == 16;
  // GDN windows with bf16 states: a state is needed only until it is in the registers of its warps.
  // So states have places of their own, one a group, and come while the group is still busy with
  // the unit before.
  static constexpr bool kStatesApart = kSwizzled && !kTiles;
  static constexpr bool kStagesState = !kPasses && !kStatesApart;
  // Value rows a warp: a lane has one, or half of the lanes have its sums with keys and half those
  // with queries.
  static constexpr int kRowsPerWarp = (kSwizzled || kPasses) && !kTiled ? 32 : 16;
  static constexpr int kWarps = kUnitRows / kRowsPerWarp;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kParts = kValueDim / kUnitRows;
  // As many bf16 numbers make one of the state's, as the matrix units take it.
  static constexpr int kStateParts = sizeof(StateType) == 2 ? 1 : 3;
  // Products and folds on the matrix units; otherwise, KDA with fp32 states, FMAs.
  static constexpr bool kMma = !kKda || kStateParts == 1;
  static constexpr int kUnitBatch = 8;
  static constexpr int kUnitTable = 2 * kUnitBatch;
  // L + T - 1 pending records and T tokens, in whole tiles of eight.
  static constexpr int kStaged = (kRecordTile + 2 * kWindow - 1 + 7) / 8 * 8;
  // Tokens that are evaluated together.
  static constexpr int kTokenGroup = 4;
  static constexpr int kGroupsMax = kWarps > 4 ? 2 : 3;  // of a block
  // Four, so that none of the schedulers has more to do than the others, and so that they can give
  // registers to the groups.
  static constexpr int kProducerWarps = 4;
  static constexpr int kThreadsMax = kGroupsMax * kThreads + 32 * kProducerWarps;
  static constexpr int kProducerRegisters = 56, kGroupRegisters = kWarps > 4 ? 104 : 152;
  // Columns of coefficients: a window's two segments begin at multiples of four.
  static constexpr int kColumns = kWindow + 4;

  static constexpr std::uint32_t kStateBytes = sizeof(State) * kRows * kKeyDim;  // of a unit

  struct Stage {
    alignas(128) State state[kStagesState ? kRows * kKeyDim : 8];
    alignas(128) bf16 keys[kStaged * kKeyDim];
    alignas(128) State corrections[kStaged * kValueDim];
    alignas(128) float gates[kStaged * kGateWidth];  // decays; the window's arrive as log gates
    float key_scales[kStaged];
    alignas(16) bf16 q[kWindow * kKeyDim];
    alignas(16) bf16 v[kValuesInPlace ? 8 : kWindow * kRows];
    alignas(16) float beta[kWindow];
  };

  // A token's decayed key and query (KDA).
  struct Exchange {
    alignas(16) bf16 decayed[kKda && kMma ? 4 * kKeyDim : 8];  // rows k high, q high, k low, q low
    alignas(16) float decayed_f32[kKda && !kMma ? 2 * kKeyDim : 4];  // rows k, q
  };

  // What the state's products with a token are multiplied with, its k.q, and its beta.
  enum Factor { kKeyFactor, kQueryFactor, kKeyQuery, kBeta, kFactors };

  // Words of the folded keys' fragments of eight columns.
  static constexpr int kFoldSteps = (kRecordTile + 15) / 16;
  static constexpr int kFoldPitch = 64 * kFoldSteps + 8;

  // In tiles: rows of coefficients behind the last record's, read in the place of tokens that do
  // not exist: those of two groups, but for the two whose own rows come before.
  static constexpr int kZeroRecords = kTiled ? 2 * kTokenGroup - 2 : 0;

  // Even; eight more, and no two of four rows meet in a bank, but chunks have no room for that.
  static constexpr int kGramPitch = kRecordTile + (kTiled ? 2 : 8);
  static constexpr int kCoefficientPitch = 2 * kColumns;  // floats of a record's

  // Of one consumer group.
  struct Scratch {
    // Products of the window's raw keys and queries, rows [key, query][token], with the keys of the
    // records of the token's segment (GDN); of each token with itself.
    alignas(16) float gram[kKda ? 1 : 2 * kWindow][kGramPitch];
    float key_key[kWindow], query_query[kWindow], key_query[kWindow];
    union {
      // KDA: sums over 32 channels, [channels][token][key, query][record]; they end in the
      // coefficients.
      float partial[kKda ? kKeyDim / 32 * kWindow * 2 * kRecordTile : 1];
      // Then, per warp: a group's products on their way to the lanes of their rows,
      // [key, query][row][token].
      alignas(16) float products[kTiled || kProductsAhead || !kMma ? 1 : kWarps]
                                [2 * kRowsPerWarp * kTokenGroup];
      // Swizzled: the keys of a fold as the matrix units take them, for all warps.
      alignas(16) std::uint32_t fold_keys[kSwizzled || kPasses ? kKeyDim / 8 : 1][kFoldPitch];
    };
    // Per warp: a segment's products, made ahead, [group of tokens][key, query][row][token].
    alignas(16) float segment_products[kProductsAhead ? kWarps : 1]
                                      [kProductsAhead ? 2 * kRowsPerWarp * kWindow : 4];
    alignas(16) float decay[kKda ? kKeyDim : 4];  // over a folded block
    Exchange exchange[kKda ? kWindow : 1];
    // [record][key, query][column]; in tiles [record][column][key, query].
    alignas(16) float coefficients[(kRecordTile + kZeroRecords) * kCoefficientPitch];
    alignas(16) float factors[kFactors][kColumns];
    // Of a fold: one for all warps, or per warp where the fold is in the stage.
    alignas(16) float weights[kSwizzled || kPasses ? 1 : kWarps][kRecordTile];
  };

  static constexpr std::size_t bytes(int stages, int groups) {
    const auto stages_ = static_cast<std::size_t>(stages);
    const auto groups_ = static_cast<std::size_t>(groups);
    constexpr std::size_t kBarriers = 2 * sizeof(std::uint64_t);
    return (sizeof(Stage) + kBarriers) * stages_ +
           (sizeof(Scratch) + (kStatesApart ? kStateBytes + kBarriers : 0)) * groups_ +
           sizeof(Unit) * kUnitTable;
  }
};

}  // namespace replayssm::cuda
