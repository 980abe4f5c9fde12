// How an operation is laid out on the GPU, decided on the host from static geometry alone: pure
// functions, testable without a GPU. No result depends on a plan, only speed does.
#pragma once

#include <cstddef>

#include "core/dtype.h"
#include "core/result.h"
#include "ops/shape.h"

namespace replayssm::cuda {

struct DeviceLimits {
  int multiprocessors = 132;
  std::size_t shared_bytes_per_block = 232448;  // opt-in limit
  std::size_t shared_bytes_per_multiprocessor = 233472;
  std::size_t shared_bytes_reserved = 1024;  // by the system, in every block
};

struct StepGeometry {
  HeadShape heads;
  DType state = DType::f32;  // f32 or bf16; corrections have the same type
  int fold_block = 16;       // L: 8, 16, 32, or 1 for tests; not used by packed_step
  int ring_rows = 32;        // R: a power of two, >= L + 2 window_max - 1; not used by packed_step
  int entries = 1;           // of the captured batch
  int window_max = 1;        // most tokens of a row, 1 to min(L, 16); not used by packed_step
};

// Overrides for measurements; zero means the plan's own choice.
struct PlanWishes {
  int unit_rows = 0;
  int groups = 0;
  int stages = 0;
  int overlap = -1;     // 1: allow overlap with the previous launch's end
  int blocks_each = 0;  // blocks a multiprocessor
};

// A block is `groups` consumer groups of four or eight warps, and the warps that produce; it
// streams units of `unit_rows` value rows of one head through `stages` stages of shared memory.
struct StepPlan {
  GateKind gate = GateKind::gdn;
  DType state = DType::f32;
  int record_tile = 16;  // records a stage holds: 16 or 32 (fold: 64 too); 0 in packed_step
  int window = 1;        // most tokens of a row: 1, 4, 8 or 16
  int unit_rows = 128;
  int groups = 2;
  int stages = 4;
  int blocks = 1;
  int threads = 288;
  bool overlap = true;
  std::size_t shared_bytes = 0;
  std::size_t shared_limit = 0;  // most that a block of the device may have
};

// Errors: a head shape that check() refuses, a group above 8, a state type other than f32 and bf16,
// a fold block, window or ring size out of range, a wish that does not fit.
Result<StepPlan> plan_window_step(const StepGeometry& geometry, const DeviceLimits& device,
                                  const PlanWishes& wishes = {});
Result<StepPlan> plan_packed_step(const StepGeometry& geometry, const DeviceLimits& device,
                                  const PlanWishes& wishes = {});

// A thread block for each value head of each entry and each of its parts of unit_rows value rows;
// `stages` are blocks of positions in shared memory. Overlap is never allowed. Errors: as above; a
// ring with fewer rows than can be pending.
Result<StepPlan> plan_chunk_prefill(const StepGeometry& geometry, const DeviceLimits& device,
                                    const PlanWishes& wishes = {});

struct FoldGeometryOnDevice {
  HeadShape heads;
  DType state = DType::f32;
  int ring_rows = 32;
  int records_max = 16;  // most records that any entry folds, 1 .. min(ring_rows, 64)
  int entries = 1;
  int layers = 1;
};
Result<StepPlan> plan_fold(const FoldGeometryOnDevice& geometry, const DeviceLimits& device,
                           const PlanWishes& wishes = {});

}  // namespace replayssm::cuda
