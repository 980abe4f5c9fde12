// Which kernel instances exist, and how a plan selects one.
#pragma once

#include <cstddef>

#include "core/bfloat16.h"
#include "ops/cuda/chunk_layout.h"
#include "ops/cuda/stage_layout.h"
#include "ops/cuda/step_plan.h"
#include "ops/cuda/window_layout.h"

namespace replayssm::cuda {

// Calls visit(Layout{}) with the StageLayout that a plan with this record tile names; the plan's
// tile and unit rows are among those that its plan function hands out.
template <int kRecordTile, class Visit>
auto visit_layout_of_tile(const StepPlan& plan, Visit&& visit) {
  auto with_gate = [&]<GateKind kGate>() {
    constexpr GateKind g = kGate;
    if (plan.state == DType::bf16) {
      return plan.unit_rows == 128 ? visit(StageLayout<g, bf16, kRecordTile, 128>{})
                                   : visit(StageLayout<g, bf16, kRecordTile, 64>{});
    }
    return plan.unit_rows == 64 ? visit(StageLayout<g, float, kRecordTile, 64>{})
                                : visit(StageLayout<g, float, kRecordTile, 32>{});
  };
  return plan.gate == GateKind::gdn ? with_gate.template operator()<GateKind::gdn>()
                                    : with_gate.template operator()<GateKind::kda>();
}

// The same for full units only.
template <int kRecordTile, class Visit>
auto visit_full_layout_of_tile(const StepPlan& plan, Visit&& visit) {
  auto with_gate = [&]<GateKind kGate>() {
    constexpr GateKind g = kGate;
    if (plan.state == DType::bf16) return visit(StageLayout<g, bf16, kRecordTile, 128>{});
    return visit(StageLayout<g, float, kRecordTile, 64>{});
  };
  return plan.gate == GateKind::gdn ? with_gate.template operator()<GateKind::gdn>()
                                    : with_gate.template operator()<GateKind::kda>();
}

// Calls visit(Layout{}) with the WindowLayout of a plan for several tokens a row and the gate
// kGate.
template <GateKind kGate, class Visit>
auto visit_window_layout(const StepPlan& plan, Visit&& visit) {
  auto with_sizes = [&]<int kRecordTile, int kWindow>() {
    if (plan.state == DType::bf16) {
      return visit(WindowLayout<kGate, bf16, kRecordTile, 128, kWindow>{});
    }
    constexpr int kRows = kGate == GateKind::gdn && kWindow == 16 ? 128 : 64;
    return visit(WindowLayout<kGate, float, kRecordTile, kRows, kWindow>{});
  };
  if (plan.record_tile == 32) return with_sizes.template operator()<32, 16>();
  switch (plan.window) {
    case 4:
      return with_sizes.template operator()<16, 4>();
    case 8:
      return with_sizes.template operator()<16, 8>();
    default:
      return with_sizes.template operator()<16, 16>();
  }
}

// The same for a chunk's plan.
template <GateKind kGate, class Visit>
auto visit_chunk_layout(const StepPlan& plan, Visit&& visit) {
  auto with_tile = [&]<int kRecordTile>() {
    if constexpr (kGate == GateKind::gdn) {
      if (plan.state == DType::f32) return visit(TiledChunkLayout<float, kRecordTile, 64>{});
      return plan.unit_rows == 128 ? visit(TiledChunkLayout<bf16, kRecordTile, 128>{})
                                   : visit(TiledChunkLayout<bf16, kRecordTile, 64>{});
    } else {
      if (plan.state == DType::f32) return visit(ChunkLayout<kGate, float, kRecordTile, 64>{});
      return plan.unit_rows == 128 ? visit(ChunkLayout<kGate, bf16, kRecordTile, 128>{})
                                   : visit(ChunkLayout<kGate, bf16, kRecordTile, 64>{});
    }
  };
  return plan.record_tile == 16 ? with_tile.template operator()<16>()
                                : with_tile.template operator()<32>();
}

// Calls visit(Layout{}) with the plan's layout, which is no chunk's.
template <class Visit>
auto visit_layout(const StepPlan& plan, Visit&& visit) {
  if (plan.window > 1) {
    return plan.gate == GateKind::gdn ? visit_window_layout<GateKind::gdn>(plan, visit)
                                      : visit_window_layout<GateKind::kda>(plan, visit);
  }
  switch (plan.record_tile) {
    case 0:
      return visit_layout_of_tile<0>(plan, visit);
    case 16:
      return visit_layout_of_tile<16>(plan, visit);
    case 32:
      return visit_layout_of_tile<32>(plan, visit);
    default:
      return visit_layout_of_tile<64>(plan, visit);
  }
}

// Shared memory of a block with the plan's layout.
inline std::size_t shared_bytes(const StepPlan& plan, int stages, int groups) {
  return visit_layout(plan, [&]<class Layout>(Layout) { return Layout::bytes(stages, groups); });
}

// The most stages that the plan's layout has bookkeeping for.
inline int stages_max(const StepPlan& plan) {
  return visit_layout(plan, []<class Layout>(Layout) { return Layout::kUnitBatch; });
}

// Threads of a block with the plan's groups.
inline int threads(const StepPlan& plan) {
  return visit_layout(plan, [&]<class Layout>(Layout) {
    return 32 * (plan.groups * Layout::kWarps + Layout::kProducerWarps);
  });
}

// The most consumer groups of a block that its kernel is built for.
inline int groups_max(const StepPlan& plan) {
  return visit_layout(plan, []<class Layout>(Layout) { return Layout::kGroupsMax; });
}

}  // namespace replayssm::cuda
