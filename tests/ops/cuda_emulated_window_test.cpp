// window_step of several tokens: the kernel's device code on the CPU.
#include <gtest/gtest.h>

#include "cuda_emulated_runner.h"
#include "cuda_window_sequence.h"
#include "rounds.h"

namespace replayssm::cuda::test {
namespace {

struct Case {
  GateKind gate;
  DType state;
  int fold_block, window, ring_rows, tokens;
};

class EmulatedWindow : public testing::TestWithParam<Case> {
 protected:
  ImageOptions options(int entries) const {
    const Case& c = GetParam();
    return sequence_options(c.gate, c.state, c.fold_block, c.ring_rows, c.window, entries);
  }
};

void run_on(int multiprocessors, Image& m) {
  const auto plan = plan_window_step(m.geometry(), {multiprocessors, 232448});
  if (!plan.ok()) throw std::runtime_error(plan.error().message);
  run_window_step(*plan, m);
}
void run_with_few_blocks(Image& m) { run_on(3, m); }

TEST_P(EmulatedWindow, EqualsStepsOfOneTokenBitForBitWhateverIsRejected) {
  ImageOptions o = options(2);
  o.shared_base = true;
  const int block = GetParam().fold_block;
  if (tests::kThreadSanitizer && block > 8) GTEST_SKIP() << "minutes under ThreadSanitizer";
  const int tokens = tests::kThreadSanitizer ? 20 : GetParam().tokens;
  EXPECT_EQ(compare_windows_with_steps(o, tokens, {0, 2 * block}, {0, block / 2 + 1},
                                       run_with_few_blocks),
            "");
}

// All groups of a block have several units, and stages are filled again.
TEST(EmulatedWindowBlock, TakesManyUnits) {
  if (tests::kThreadSanitizer) GTEST_SKIP() << "minutes under ThreadSanitizer";
  for (const GateKind gate : {GateKind::gdn, GateKind::kda}) {
    ImageOptions o = sequence_options(gate, DType::bf16, 16, 32, 8, 3);
    EXPECT_EQ(compare_windows_with_steps(o, 24, {0}, {9}, [](Image& m) { run_on(1, m); }), "");
  }
}

// A block fills its few stages again with nothing but a lane's arrival for each warp between the
// reads and the copies, which racecheck takes for a race.
TEST(EmulatedWindowBlock, FillsStagesAgainWithoutGroupBarriers) {
  const ImageOptions o = sequence_options(GateKind::gdn, DType::f32, 8, 32, 2, 3);
  EXPECT_EQ(compare_windows_with_steps(o, 12, {0}, {5}, [](Image& m) { run_on(1, m); }), "");
}

// The state of a group's next unit arrives in the same place while this one is evaluated.
TEST(EmulatedWindowBlock, FillsAGroupsStateAgainWhileItsUnitIsEvaluated) {
  const ImageOptions o = sequence_options(GateKind::gdn, DType::bf16, 8, 32, 8, 3);
  EXPECT_EQ(compare_windows_with_steps(o, 12, {0}, {5}, [](Image& m) { run_on(1, m); }), "");
}

// Blocks run one after the other here: the unit that appends a window's keys is done before its
// siblings read the ring. With fewer than L + 2 T - 1 rows that must show.
TEST(EmulatedWindowRing, OneThatIsTooSmallIsFoundOut) {
  if (tests::kThreadSanitizer) GTEST_SKIP() << "a race, as ThreadSanitizer says";
  ImageOptions o;
  o.heads = {GateKind::gdn, 1, 2};
  o.state = DType::bf16;
  o.fold_block = 8;
  o.window = 8;
  o.ring_rows = 16;  // enough for steps of one token; plan_window_step refuses it for windows
  const auto run = [](Image& m) {
    StepGeometry geometry = m.geometry();
    geometry.ring_rows = 32;
    const auto plan = plan_window_step(geometry, {3, 232448});
    if (!plan.ok()) throw std::runtime_error(plan.error().message);
    run_window_step(*plan, m);
  };
  EXPECT_NE(compare_windows_with_steps(o, 40, {8}, {5}, run), "");
}

INSTANTIATE_TEST_SUITE_P(All, EmulatedWindow,
                         testing::Values(Case{GateKind::gdn, DType::bf16, 16, 8, 32, 50},
                                         Case{GateKind::gdn, DType::bf16, 16, 4, 32, 40},
                                         Case{GateKind::gdn, DType::bf16, 32, 16, 64, 60},
                                         Case{GateKind::gdn, DType::f32, 16, 4, 32, 40},
                                         Case{GateKind::kda, DType::bf16, 16, 8, 32, 40},
                                         Case{GateKind::kda, DType::f32, 16, 5, 32, 40},
                                         Case{GateKind::gdn, DType::bf16, 16, 16, 64, 60},
                                         Case{GateKind::kda, DType::bf16, 16, 16, 64, 50},
                                         Case{GateKind::gdn, DType::bf16, 8, 8, 32, 40},
                                         Case{GateKind::kda, DType::f32, 8, 3, 16, 30},
                                         Case{GateKind::gdn, DType::f32, 32, 16, 64, 80},
                                         Case{GateKind::kda, DType::bf16, 32, 7, 64, 60}));

}  // namespace
}  // namespace replayssm::cuda::test
