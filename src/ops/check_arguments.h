// What every backend checks before an operation writes anything. Errors name the argument, its
// value and what is accepted.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "ops/linear_ops.h"

namespace replayssm {

enum class StepKind { packed, window, chunk };

// Where a backend keeps cursors: values on a device cannot be looked at.
enum class CursorMemory { host, device };

// Checks arguments for one backend. Keeps marks of the rows and slots that it has seen, so that a
// check allocates nothing once it has seen the largest batch. Not thread-safe.
class ArgumentCheck {
 public:
  // The element types that the backend's states and corrections may have.
  ArgumentCheck(std::initializer_list<DType> states, std::initializer_list<DType> corrections,
                std::initializer_list<DType> keys = {DType::f32, DType::bf16},
                DType activations = DType::f32, CursorMemory cursors = CursorMemory::host)
      : state_types_(states),
        correction_types_(corrections),
        key_types_(keys),
        activations_(activations),
        cursors_(cursors) {}

  Status step(const StepArgs& args, StepKind kind);
  Status fold(const FoldArgs& args);
  Status advance(const AdvanceArgs& args);
  Status conv(const ConvArgs& args, StepKind kind);
  Status gates(const GateArgs& args);
  Status transfer(const HeadShape& shape, const StateView& states, SlotId slot,
                  std::size_t elements);

 private:
  // Numbers seen since begin(); add() is false for one that was already there.
  class Marks {
   public:
    void begin(int size);
    bool add(std::int32_t index);
    bool holds(std::int32_t index) const;

   private:
    std::vector<std::uint32_t> marked_;
    std::uint32_t round_ = 0;
  };

  // A row of [0, rows) that was not there since begin(), or the null row.
  Status row_once(RowIndex row, const CursorView& cursors, int rows);
  Status rows(std::span<const RowTokens> rows, const CursorView& cursors, int memory_rows,
              StepKind kind, const FoldGeometry& geometry);
  Status slots(std::span<const RowTokens> rows, const CursorView& cursors, int slots, StepKind kind,
               const FoldGeometry& geometry);
  Status states(const HeadShape& shape, const StateView& states) const;
  Status rings(const RingView& rings, const FoldGeometry& geometry) const;
  Status tails(const ConvTailView& tails, const ConvRingView& rings) const;

  std::vector<DType> state_types_;
  std::vector<DType> correction_types_;
  std::vector<DType> key_types_;
  DType activations_;
  CursorMemory cursors_;
  Marks rows_;
  Marks bases_;
  Marks homes_;
};

}  // namespace replayssm
