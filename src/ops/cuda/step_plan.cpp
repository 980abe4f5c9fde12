#include "ops/cuda/step_plan.h"

#include <algorithm>

#include "ops/cuda/instances.h"

namespace replayssm::cuda {
namespace {

Status check_common(const HeadShape& heads, DType state, int entries) {
  REPLAYSSM_TRY(check(heads));
  if (heads.group() > 8) return refuse("value_heads / key_heads", heads.group(), "1 to 8");
  if (state != DType::f32 && state != DType::bf16) {
    return refuse("state type", name_of(state), "float32 or bfloat16");
  }
  if (entries < 1) return refuse("entries", entries, "at least 1");
  return {};
}

Status check_block_and_window(int block, int window) {
  if (block != 1 && block != 8 && block != 16 && block != 32) {
    return refuse("fold_block", block, "8, 16 or 32 (1 for tests)");
  }
  if (window < 1 || window > std::min(block, 16)) {
    return refuse("window_max", window, fmt::format("1 to {}", std::min(block, 16)));
  }
  return {};
}

bool power_of_two(int x) { return x > 0 && (x & (x - 1)) == 0; }

Status check_ring(int rows, int rows_min) {
  if (power_of_two(rows) && rows >= rows_min) return {};
  return refuse("ring_rows", rows, fmt::format("a power of two, at least {}", rows_min));
}

// Rows of a full unit: 32 KiB of state.
int full_rows(DType state) { return state == DType::bf16 ? 128 : 64; }

// What a kernel may choose from, and what serves it best; a round is one unit for every
// multiprocessor. Measured: see bench/lab/NOTES.md, version 5.
struct Choices {
  bool whole_heads = false;       // units are whole heads, whatever their bytes
  bool halves_exist = false;      // instances with half units
  bool halves_when_idle = false;  // half units where whole ones leave half the multiprocessors idle
  // Two blocks of one group share a multiprocessor: from two rounds up to so many, and from so many
  // on. When one ends, the next launch's block moves in while the other still works.
  int paired_from = 1 << 30;
  int paired_stages = 2;
  int paired_up_to = 0;
  // Up to so many rounds one group works alone in a block of two stages.
  int rounds_of_one_group = 1;
  int rounds_of_three_stages = 0;  // up to so many, two groups have three stages
  int stages_max = 1 << 30;        // of a block that is alone on its multiprocessor
};

// For `heads` heads of all entries and layers.
Result<StepPlan> fill(StepPlan plan, long heads, const DeviceLimits& device,
                      const PlanWishes& wishes, const Choices& choices) {
  const int full = choices.whole_heads ? kValueDim : full_rows(plan.state);
  const long units_of_full_size = heads * kValueDim / full;
  const int sms = device.multiprocessors;
  plan.unit_rows = choices.halves_when_idle && 2 * units_of_full_size <= sms ? full / 2 : full;
  if (wishes.unit_rows != 0) {
    if (wishes.unit_rows != full && !(choices.halves_exist && wishes.unit_rows == full / 2)) {
      return refuse("unit_rows", wishes.unit_rows, fmt::format("{} or {}", full, full / 2));
    }
    plan.unit_rows = wishes.unit_rows;
  }
  const long units = units_of_full_size * full / plan.unit_rows;
  const long rounds = (units + sms - 1) / sms;
  const auto bytes = [&](int stages) { return shared_bytes(plan, stages, plan.groups); };
  const auto pair_fits = [&](int stages) {
    return 2 * (bytes(stages) + device.shared_bytes_reserved) <=
           device.shared_bytes_per_multiprocessor;
  };
  plan.groups = 1;
  bool paired =
      (rounds >= choices.paired_from || (rounds >= 2 && rounds <= choices.paired_up_to)) &&
      pair_fits(choices.paired_stages);
  if (wishes.groups != 0 || wishes.stages != 0 || wishes.blocks_each != 0) {
    paired = wishes.blocks_each == 2;
  }
  plan.blocks = static_cast<int>(std::min<long>(units, static_cast<long>(sms) * (paired ? 2 : 1)));
  plan.groups = paired || rounds <= choices.rounds_of_one_group ? 1 : groups_max(plan);
  if (wishes.groups != 0) plan.groups = wishes.groups;
  if (plan.groups < 1 || plan.groups > groups_max(plan)) {
    return refuse("groups", plan.groups, fmt::format("1 to {}", groups_max(plan)));
  }
  auto stages_that_fit = [&] {
    int n = 0;
    while (n < stages_max(plan) && bytes(n + 1) <= device.shared_bytes_per_block) ++n;
    return n;
  };
  int fitting = stages_that_fit();
  while (fitting < plan.groups && plan.groups > 1 && wishes.groups == 0) {
    --plan.groups;
    fitting = stages_that_fit();
  }
  plan.threads = threads(plan);
  // A block with few units takes few stages, so that a block of the next launch finds room beside
  // it and can fetch early; one with many takes what serves best.
  plan.stages = std::min(fitting, choices.stages_max);
  if (paired) plan.stages = std::min(fitting, choices.paired_stages);
  if (!paired && rounds <= choices.rounds_of_one_group) {
    plan.stages = std::min<int>(fitting, rounds == 1 ? plan.groups : 2);
  }
  if (!paired && plan.groups == 2 && rounds <= choices.rounds_of_three_stages) {
    plan.stages = std::min(plan.stages, 3);
  }
  if (wishes.stages != 0) plan.stages = wishes.stages;
  if (plan.stages < plan.groups || plan.stages > fitting) {
    return refuse("stages", plan.stages,
                  fmt::format("{} (one a group) to {}", plan.groups, fitting));
  }
  plan.shared_bytes = shared_bytes(plan, plan.stages, plan.groups);
  plan.shared_limit = device.shared_bytes_per_block;
  plan.overlap = wishes.overlap != 0;
  return plan;
}

}  // namespace

Result<StepPlan> plan_window_step(const StepGeometry& geometry, const DeviceLimits& device,
                                  const PlanWishes& wishes) {
  REPLAYSSM_TRY(check_common(geometry.heads, geometry.state, geometry.entries));
  const int block = geometry.fold_block, window = geometry.window_max;
  REPLAYSSM_TRY(check_block_and_window(block, window));
  // A block of the grid may read ring rows of a key head while another appends to it.
  const int rows_min = block + 2 * window - 1;
  REPLAYSSM_TRY(check_ring(geometry.ring_rows, rows_min));
  StepPlan plan;
  plan.gate = geometry.heads.gate;
  plan.state = geometry.state;
  plan.record_tile = block <= 16 ? 16 : 32;
  const long heads = static_cast<long>(geometry.entries) * geometry.heads.value_heads;
  const bool kda = geometry.heads.gate == GateKind::kda;
  Choices choices;
  if (window > 1) {
    plan.window = plan.record_tile == 32 || window > 8 ? 16 : window > 4 ? 8 : 4;
    choices.whole_heads = !kda && plan.window == 16;
    return fill(plan, heads, device, wishes, choices);
  }
  choices.halves_exist = true;
  choices.paired_up_to = 2;
  choices.rounds_of_three_stages = 4;
  choices.stages_max = 4;
  if (kda) {
    choices.paired_from = 24;
  } else {
    choices.rounds_of_one_group = 3;
    choices.paired_from = plan.state == DType::bf16 ? 16 : 4;
    if (plan.state == DType::bf16) choices.paired_up_to = 3;
  }
  return fill(plan, heads, device, wishes, choices);
}

Result<StepPlan> plan_packed_step(const StepGeometry& geometry, const DeviceLimits& device,
                                  const PlanWishes& wishes) {
  REPLAYSSM_TRY(check_common(geometry.heads, geometry.state, geometry.entries));
  StepPlan plan;
  plan.gate = geometry.heads.gate;
  plan.state = geometry.state;
  plan.record_tile = 0;
  const long heads = static_cast<long>(geometry.entries) * geometry.heads.value_heads;
  Choices choices;
  choices.halves_exist = true;
  choices.halves_when_idle = true;
  choices.paired_up_to = 2;
  choices.paired_stages = 3;
  choices.rounds_of_one_group = 2;
  // Measured better for this one alone; elsewhere a block to itself is as good.
  if (plan.gate == GateKind::kda && plan.state == DType::f32) choices.paired_from = 24;
  return fill(plan, heads, device, wishes, choices);
}

Result<StepPlan> plan_chunk_prefill(const StepGeometry& geometry, const DeviceLimits& device,
                                    const PlanWishes& wishes) {
  REPLAYSSM_TRY(check_common(geometry.heads, geometry.state, geometry.entries));
  const int block = geometry.fold_block;
  REPLAYSSM_TRY(check_block_and_window(block, geometry.window_max));
  // Everything pending is read before anything is appended.
  const int rows_min = block + geometry.window_max - 1;
  REPLAYSSM_TRY(check_ring(geometry.ring_rows, rows_min));
  StepPlan plan;
  plan.gate = geometry.heads.gate;
  plan.state = geometry.state;
  plan.record_tile = block <= 16 ? 16 : 32;
  plan.window = kChunkSegment;
  plan.groups = 1;
  plan.overlap = false;
  // Blocks of positions follow one another, so a chunk of few heads takes as long as one of them:
  // smaller units shorten that where multiprocessors are left over for them.
  const int full = full_rows(plan.state), heads = geometry.entries * geometry.heads.value_heads;
  const bool halves_exist = plan.state == DType::bf16;
  plan.unit_rows = halves_exist && 2 * heads <= device.multiprocessors ? full / 2 : full;
  if (wishes.unit_rows != 0) {
    if (wishes.unit_rows != full && !(halves_exist && wishes.unit_rows == full / 2)) {
      return refuse(
          "unit_rows", wishes.unit_rows,
          halves_exist ? fmt::format("{} or {}", full, full / 2) : fmt::format("{}", full));
    }
    plan.unit_rows = wishes.unit_rows;
  }
  plan.blocks = heads * kValueDim / plan.unit_rows;
  const auto fill_in = [&]<class Layout>(Layout) {
    plan.stages = Layout::kBlocks;
    plan.threads = Layout::kChunkThreads;
    plan.shared_bytes = Layout::bytes(plan.stages, plan.groups);
  };
  plan.gate == GateKind::gdn ? visit_chunk_layout<GateKind::gdn>(plan, fill_in)
                             : visit_chunk_layout<GateKind::kda>(plan, fill_in);
  if (plan.shared_bytes > device.shared_bytes_per_block) {
    return refuse(
        "fold_block", block,
        fmt::format("one whose chunks fit into the {} bytes of shared memory that a block "
                    "may have on this device, not {}",
                    device.shared_bytes_per_block, plan.shared_bytes));
  }
  plan.shared_limit = device.shared_bytes_per_block;
  return plan;
}

Result<StepPlan> plan_fold(const FoldGeometryOnDevice& geometry, const DeviceLimits& device,
                           const PlanWishes& wishes) {
  REPLAYSSM_TRY(check_common(geometry.heads, geometry.state, geometry.entries));
  if (!power_of_two(geometry.ring_rows)) {
    return refuse("ring_rows", geometry.ring_rows, "a power of two");
  }
  if (geometry.records_max < 1 || geometry.records_max > std::min(geometry.ring_rows, 64)) {
    return refuse("records_max", geometry.records_max,
                  fmt::format("1 to {}", std::min(geometry.ring_rows, 64)));
  }
  if (geometry.layers < 1) return refuse("layers", geometry.layers, "at least 1");
  StepPlan plan;
  plan.gate = geometry.heads.gate;
  plan.state = geometry.state;
  plan.record_tile = geometry.records_max <= 16 ? 16 : geometry.records_max <= 32 ? 32 : 64;
  const long heads =
      static_cast<long>(geometry.layers) * geometry.entries * geometry.heads.value_heads;
  return fill(plan, heads, device, wishes, {});
}

}  // namespace replayssm::cuda
