// What lies in a block's shared memory: a ring of stages, each the inputs of one unit of work, and
// scratch for each consumer group. Plain C++, so that plans can size it without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/bfloat16.h"
#include "ops/shape.h"

namespace replayssm::cuda {

inline constexpr int kWarpsPerGroup = 4;
inline constexpr int kGroupThreads = 32 * kWarpsPerGroup;

enum class UnitKind : int { end, null_row, live };

// A unit of work: kUnitRows value rows of one head of one batch entry. Pointers are to global
// memory, at this unit's first value row where the memory has one.
struct Unit {
  UnitKind kind;
  int records;    // live records
  int fold;       // nonzero: fold them, then evaluate against the folded state
  int has_state;  // zero: the state is zero and is not read
  int value_head;
  int first_value;    // value row that the unit begins with
  int owns_key_row;   // nonzero: this unit appends the key's record
  int owns_gate_row;  // nonzero: this unit appends the head's gate
  // What is written.
  void* state_out;
  void* out;
  void* correction_out;
  bf16* key_out;
  float* key_scale_out;
  float* gate_out;
  // What the producer copies. The rings are those of the head, records begin at first_row.
  const void* state;
  const bf16* keys;
  const float* key_scales;
  const void* corrections;
  const float* gates;
  const bf16* q;
  const bf16* k;
  const bf16* v;
  const float* gate;
  const float* beta;
  int first_row;
  // Windows of several tokens.
  int tokens;
  int append_row;  // ring row of the first token's record
};

// A stage's records from one of them on.
template <class Layout>
struct StagedRecords {
  bf16* keys;                           // [records][K]
  typename Layout::State* corrections;  // [records][V]
  float* gates;                         // [records][gate width]
  float* key_scales;                    // [records]
};

template <GateKind kGateKind, class StateType, int kRecordTile, int kUnitRows>
struct StageLayout {
  using State = StateType;
  static constexpr GateKind kGate = kGateKind;
  static constexpr bool kKda = kGateKind == GateKind::kda;
  static constexpr int kGateWidth = kKda ? kKeyDim : 1;
  static constexpr int kRecords = kRecordTile;             // 0: no records (packed_step)
  static constexpr int kRows = kUnitRows;                  // value rows a unit
  static constexpr int kWarps = kWarpsPerGroup;            // of a group
  static constexpr int kRowsPerWarp = kUnitRows / kWarps;  // value rows a warp
  static constexpr int kParts = kValueDim / kUnitRows;     // units a head
  // As many bf16 numbers make one of the state's, as the matrix units take it.
  static constexpr int kStateParts = sizeof(StateType) == 2 ? 1 : 3;
  // Products and folds on the matrix units; otherwise, KDA with fp32 states, FMAs.
  static constexpr bool kMma = !kKda || kStateParts == 1;
  static constexpr int kSlots = kRecords == 0 ? 1 : kRecords;
  static constexpr int kTokens = 1;
  static constexpr bool kRepresentative = true;  // see kIsBuilt
  static constexpr bool kSwizzled = false;
  static constexpr bool kTiled = false;
  static constexpr bool kStatesApart = false;
  static constexpr bool kStagesState = true;
  static constexpr int kGroupsMax = 2;  // of a block
  static constexpr int kProducerWarps = 1;
  // Units are described this many at a time, one a lane, in a table of two such batches. A unit is
  // overwritten two batches later, when its stage has long been reused: stages <= kUnitBatch. The
  // largest stages leave room for a small table only, if two blocks are to share a multiprocessor.
  static constexpr int kUnitBatch = kKda && !kMma && kRecords > 0 && kUnitRows == 64 ? 4 : 8;
  static constexpr int kUnitTable = 2 * kUnitBatch;

  static constexpr std::uint32_t kStateBytes = sizeof(State) * kRows * kKeyDim;  // of a unit

  struct Stage {
    alignas(128) State state[kRows * kKeyDim];
    alignas(128) bf16 keys[kSlots * kKeyDim];
    alignas(128) State corrections[kSlots * kValueDim];  // whole rows, whatever the unit's part
    // Decays, exp(g). KDA folds overwrite them in place with the decayed keys.
    alignas(128) float gates[kSlots * kGateWidth];
    float key_scales[kSlots];
    alignas(16) bf16 q[kKeyDim];
    alignas(16) bf16 k[kKeyDim];
    alignas(16) bf16 v[kRows];
    alignas(16) float gate[kGateWidth];
    float beta;
  };

  // Of one consumer group. What the group's warps exchange is kept twice and used in turn, so one
  // group barrier a unit is enough. GDN units need no exchange and no barrier.
  struct Exchange {
    alignas(16) float partial[kKda ? kWarpsPerGroup * 2 * kSlots : 4];
    alignas(16) bf16 decayed[kKda && kMma ? 4 * kKeyDim : 8];  // rows k high, q high, k low, q low
    alignas(16) float decayed_f32[kKda && !kMma ? 2 * kKeyDim : 4];  // rows k, q
    alignas(16) float decay[kKda ? kKeyDim : 4];  // over the folded block, or of this token
  };
  struct Scratch {
    Exchange exchange[2];
    // Per warp: what each record contributes to the two products, or its weight in a fold.
    alignas(16) float coefficients[kWarpsPerGroup][2 * kSlots];
  };

  // Shared memory of a block. Stages first, then scratch, the unit table and barriers.
  static constexpr std::size_t bytes(int stages, int groups) {
    return sizeof(Stage) * static_cast<std::size_t>(stages) +
           sizeof(Scratch) * static_cast<std::size_t>(groups) + sizeof(Unit) * kUnitTable +
           2 * sizeof(std::uint64_t) * static_cast<std::size_t>(stages);
  }
};

}  // namespace replayssm::cuda
