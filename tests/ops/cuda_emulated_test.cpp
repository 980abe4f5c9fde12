// The CUDA kernels' device code, run on the CPU thread by thread.
#include <gtest/gtest.h>

#include "cuda_emulated_runner.h"
#include "cuda_step_expect.h"

namespace replayssm::cuda::test {
namespace {

const DeviceLimits kFewBlocks{3, 232448};

StepPlan window_plan(const Image& m, const PlanWishes& wishes = {}) {
  auto plan = plan_window_step(m.geometry(), kFewBlocks, wishes);
  if (!plan.ok()) throw std::runtime_error(plan.error().message);
  return *plan;
}
StepPlan packed_plan(const Image& m, const PlanWishes& wishes = {}) {
  auto plan = plan_packed_step(m.geometry(), kFewBlocks, wishes);
  if (!plan.ok()) throw std::runtime_error(plan.error().message);
  return *plan;
}

struct Case {
  GateKind gate;
  DType state;
  int fold_block, ring_rows;
};

class EmulatedStep : public testing::TestWithParam<Case> {
 protected:
  ImageOptions options(int key_heads, int value_heads, int entries) const {
    const Case& c = GetParam();
    ImageOptions o;
    o.heads = {c.gate, key_heads, value_heads};
    o.state = c.state;
    o.fold_block = c.fold_block;
    o.ring_rows = c.ring_rows;
    o.entries = entries;
    o.seed = static_cast<std::uint64_t>(c.fold_block * 10 + value_heads);
    return o;
  }
};

TEST_P(EmulatedStep, WindowStepIsTheRecurrenceInEveryPhase) {
  const int block = GetParam().fold_block;
  ImageOptions o = options(1, 2, 6);
  o.null_rows = true;
  o.shared_base = true;
  const Image before = make_image(o, {0, 2 * block, 3 * block, 3 * block, 0},
                                  {0, 1, block - 1, block, block / 2, block});
  Image after = before;
  run_window_step(window_plan(after), after);
  const Worst worst = compare_step(before, after, false);
  EXPECT_EQ(worst.fault, "") << worst.output << " " << worst.correction << " " << worst.state;
}

TEST_P(EmulatedStep, PackedStepIsTheRecurrence) {
  ImageOptions o = options(1, 3, 2);
  o.shared_base = true;
  o.projected_gates = true;
  const Image before = make_image(o, {0, 7}, {0});
  Image after = before;
  run_packed_step(packed_plan(after), after);
  const Worst worst = compare_step(before, after, true);
  EXPECT_EQ(worst.fault, "") << worst.output << " " << worst.state;
}

TEST_P(EmulatedStep, ResultsDoNotDependOnTheSplit) {
  const int block = GetParam().fold_block;
  const Image before = make_image(options(1, 1, 3), {block, 2 * block}, {block, 3, 0});
  Image whole = before, split = before, early = before;
  early.o.settled = true;
  Image shared = before;
  const int full = GetParam().state == DType::bf16 ? 128 : 64;
  run_window_step(window_plan(whole, {.unit_rows = full, .groups = 2, .stages = 2}), whole);
  run_window_step(window_plan(split, {.unit_rows = full / 2, .groups = 1, .stages = 3}), split);
  run_window_step(window_plan(early, {.unit_rows = full / 2, .groups = 2, .stages = 2}), early);
  // Three stages and two groups: each stage is in turn one group's and the other's.
  run_window_step(window_plan(shared, {.unit_rows = full / 2, .groups = 2, .stages = 3}), shared);
  Worst worst;
  compare_untouched(whole, split, worst);
  compare_untouched(whole, early, worst);
  compare_untouched(whole, shared, worst);
  EXPECT_EQ(worst.fault, "");
}

// Blocks run one after the other here, so the unit that appends the key is done before its siblings
// read the ring: see check_ring_overwrite in cuda_step_check.cpp.
TEST_P(EmulatedStep, AppendingDoesNotTouchWhatSiblingUnitsRead) {
  const int block = GetParam().fold_block;
  ImageOptions o = options(1, 2, 1);
  const PlanWishes wishes{
      .unit_rows = GetParam().state == DType::bf16 ? 64 : 32, .groups = 1, .stages = 1};
  const Image before = make_image(o, {2 * block}, {block});
  const StepPlan plan = window_plan(before, wishes);
  Image after = before;
  run_window_step(plan, after);
  EXPECT_EQ(compare_step(before, after, false).fault, "");
  o.ring_rows = block;  // too small; plan_window_step refuses it
  const Image small_before = make_image(o, {2 * block}, {block});
  Image small = small_before;
  run_window_step(plan, small);
  EXPECT_NE(compare_step(small_before, small, false).fault, "");
}

// The bounded kind of KDA gate, from its projections.
TEST_P(EmulatedStep, BoundedGatesAreComputedFromTheirProjections) {
  if (GetParam().gate != GateKind::kda) GTEST_SKIP() << "GDN has one kind of gate";
  ImageOptions o = options(1, 2, 2);
  o.projected_gates = true;
  o.lower_bound = -5;
  const Image before = make_image(o, {0, GetParam().fold_block}, {0, 3});
  Image after = before;
  run_window_step(window_plan(after), after);
  EXPECT_EQ(compare_step(before, after, false).fault, "");
}

INSTANTIATE_TEST_SUITE_P(All, EmulatedStep,
                         testing::Values(Case{GateKind::gdn, DType::f32, 16, 32},
                                         Case{GateKind::gdn, DType::bf16, 16, 32},
                                         Case{GateKind::kda, DType::f32, 16, 32},
                                         Case{GateKind::kda, DType::bf16, 16, 32},
                                         Case{GateKind::gdn, DType::f32, 8, 16},
                                         Case{GateKind::kda, DType::bf16, 8, 16},
                                         Case{GateKind::gdn, DType::bf16, 32, 64},
                                         Case{GateKind::kda, DType::f32, 32, 64}));

// With a fold block of 1 every token folds the one before it, and an fp32 state then takes the same
// roundings as the packed step.
class EmulatedBlockOfOne : public testing::TestWithParam<GateKind> {};

TEST_P(EmulatedBlockOfOne, EqualsThePackedStepBitForBit) {
  ImageOptions o;
  o.heads = {GetParam(), 1, 1};
  o.fold_block = 1;
  o.ring_rows = 2;
  Image replay = make_image(o, {0}, {0});
  Image packed = replay;
  for (int token = 0; token < 4; ++token) {
    draw_inputs(replay, static_cast<std::uint64_t>(token));
    draw_inputs(packed, static_cast<std::uint64_t>(token));
    run_window_step(window_plan(replay), replay);
    run_packed_step(packed_plan(packed), packed);
    EXPECT_EQ(replay.out, packed.out) << token;
    run_advance(replay, false);
    run_advance(packed, true);
  }
}

INSTANTIATE_TEST_SUITE_P(Gates, EmulatedBlockOfOne, testing::Values(GateKind::gdn, GateKind::kda));

// A state that forgets little, where sums that are cut off instead of rounded would add up.
class EmulatedLongRun : public testing::TestWithParam<GateKind> {};

TEST_P(EmulatedLongRun, ErrorsOfFp32StatesStayBelow1em6) {
  ImageOptions o;
  o.heads = {GetParam(), 1, 1};
  o.fold_block = 16;
  o.ring_rows = 32;
  Image replay = make_image(o, {0}, {0});
  Image packed = replay;
  HeadState s(kValueDim * kKeyDim);
  std::vector<double> d, out;
  const int tokens = 320, quarter = tokens / 4;
  double error[2] = {}, size = 0;  // of the last quarter
  for (int token = 0; token < tokens; ++token) {
    for (Image* const m : {&replay, &packed}) {
      draw_inputs(*m, static_cast<std::uint64_t>(token));
      for (float& gate : m->gate) gate = gate < -1 ? -0.01f : gate * 0.1f;
    }
    step(replay, 0, 0, s, d, out);
    run_window_step(window_plan(replay), replay);
    run_packed_step(packed_plan(packed), packed);
    run_advance(replay, false);
    run_advance(packed, true);
    for (int v = 0; token >= tokens - quarter && v < kValueDim; ++v) {
      const double want = out[static_cast<std::size_t>(v)];
      error[0] += std::pow(replay.out_value(0, 0, v) - want, 2);
      error[1] += std::pow(packed.out_value(0, 0, v) - want, 2);
      size += want * want;
    }
  }
  const double of_replay = std::sqrt(error[0] / size), of_packed = std::sqrt(error[1] / size);
  EXPECT_LT(of_replay, 1e-6);
  EXPECT_LT(of_packed, 1e-6);
  EXPECT_LT(of_replay, 4 * of_packed);
  RecordProperty("errors", fmt::format("replay {:.3g}, packed {:.3g}", of_replay, of_packed));
}

INSTANTIATE_TEST_SUITE_P(Gates, EmulatedLongRun, testing::Values(GateKind::gdn, GateKind::kda));

// n records from depth `from`, into the base slot, another slot, or a buffer.
TEST_P(EmulatedStep, FoldAppliesAnyNumberOfRecordsInAllLayers) {
  const int ring = GetParam().ring_rows;
  const int most = std::min(ring, 47);
  ImageOptions o = options(1, 1, 4);
  Image layer0 = make_image(o, {0, ring / 2}, {most, 5, 1, 0});
  o.seed += 100;
  Image layer1 = make_image(o, {0, ring / 2}, {most, 5, 1, 0});
  const Image before[2] = {layer0, layer1};
  const std::size_t layer_bytes = kValueDim * kKeyDim * layer0.element();
  std::vector<unsigned char> buffer(2 * layer_bytes, 0xff);
  std::vector<int> from, records, source, destination;
  std::vector<void*> buffers(4, nullptr);
  for (std::size_t e = 0; e < 4; ++e) {
    const auto row = static_cast<std::size_t>(layer0.row[e]);
    from.push_back(layer0.checkpoint[row]);
    records.push_back(layer0.committed[row] - layer0.checkpoint[row]);
    source.push_back(e == 2 ? -1 : layer0.base[row]);
    destination.push_back(e == 1 ? -1 : e == 3 ? 0 : layer0.base[row]);
  }
  buffers[1] = buffer.data();
  auto memory = [](Image& m) {
    return FoldLayer{{m.states.data(), m.slot_stride},
                     {m.keys.data(), m.key_scales.data(), m.corrections.data(), m.gates.data()}};
  };
  const FoldLayer layers[2] = {memory(layer0), memory(layer1)};
  FoldArgs args{layers,
                2,
                4,
                layer0.row.data(),
                from.data(),
                records.data(),
                source.data(),
                destination.data(),
                buffers.data(),
                1,
                1,
                ring};
  auto plan = plan_fold({o.heads, o.state, ring, most, 4, 2}, kFewBlocks);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  run_fold(*plan, args);
  Worst worst;
  for (std::size_t layer = 0; layer < 2; ++layer) {
    const Image& was = before[layer];
    const Image& is = layer == 0 ? layer0 : layer1;
    Image allowed = was;
    for (std::size_t e = 0; e < 4; ++e) {
      if (source[e] < 0) continue;
      HeadState want = from[e] > 0 ? load_state(was, source[e], 0) : HeadState(128 * 128);
      for (int p = from[e]; p < from[e] + records[e]; ++p) {
        apply_record(was, was.row[e], 0, p, want);
      }
      if (destination[e] >= 0) {
        compare_state(is, destination[e], 0, want, worst);
        allow(allowed.states, is.states, was.state_at(destination[e], 0, 0, 0) * was.element(),
              layer_bytes);
      } else {
        Image buffered = is;
        std::copy_n(buffer.data() + layer * layer_bytes, layer_bytes, buffered.states.data());
        compare_state(buffered, 0, 0, want, worst);
      }
    }
    compare_untouched(allowed, is, worst);
  }
  judge(worst, before[0]);
  EXPECT_EQ(worst.fault, "") << worst.state;
}

}  // namespace
}  // namespace replayssm::cuda::test
