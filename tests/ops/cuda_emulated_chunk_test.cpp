// chunk_prefill: the kernels' device code on the CPU.
#include <gtest/gtest.h>

#include "cuda_emulated_runner.h"
#include "cuda_window_sequence.h"
#include "rounds.h"

namespace replayssm::cuda::test {
namespace {

constexpr DeviceLimits kFewBlocks{3, 232448};

struct Case {
  GateKind gate;
  DType state;
  int fold_block, window_max, ring_rows, tokens;
  int unit_rows = 0;
};

class EmulatedChunk : public testing::TestWithParam<Case> {
 protected:
  ImageOptions options(int entries, int chunk) const {
    const Case& c = GetParam();
    return sequence_options(c.gate, c.state, c.fold_block, c.ring_rows, chunk, entries);
  }
  // Chunks; the steps beside them are windows of one token.
  Split split() const {
    const Case c = GetParam();
    const auto plan_of = [c](const Image& m, bool chunk) {
      StepGeometry geometry = m.geometry();
      geometry.window_max = c.window_max;
      const auto plan = chunk ? plan_chunk_prefill(geometry, kFewBlocks, {.unit_rows = c.unit_rows})
                              : plan_window_step(geometry, kFewBlocks);
      if (!plan.ok()) throw std::runtime_error(plan.error().message);
      return *plan;
    };
    return {true, [=](Image& m) { run_chunk_prefill(plan_of(m, true), m); },
            [=](Image& m) { run_window_step(plan_of(m, false), m); }, 64};
  }
};

TEST_P(EmulatedChunk, AnySplitIntoChunksEqualsStepsOfOneTokenBitForBit) {
  const Case& c = GetParam();
  if (tests::kSanitized && c.fold_block > 8) GTEST_SKIP() << "minutes under the sanitizers";
  ImageOptions o = options(2, 2 * c.fold_block + 3);
  o.shared_base = true;
  const int tokens = tests::kThreadSanitizer ? 24 : c.tokens;
  EXPECT_EQ(compare_split_with_steps(o, tokens, {0, 2 * c.fold_block},
                                     {0, c.fold_block + c.window_max - 1}, split()),
            "");
}

// Gates and betas from their projections, against windows that compute them as well.
TEST_P(EmulatedChunk, ProjectedGatesAreThoseOfSteps) {
  const Case& c = GetParam();
  if (c.fold_block != 16) GTEST_SKIP() << "does not depend on the fold block";
  ImageOptions o = options(1, c.fold_block + 9);
  o.projected_gates = true;
  if (c.gate == GateKind::kda) o.lower_bound = -5;
  EXPECT_EQ(compare_split_with_steps(o, o.window, {c.fold_block}, {3}, split()), "");
}

INSTANTIATE_TEST_SUITE_P(All, EmulatedChunk,
                         testing::Values(Case{GateKind::gdn, DType::bf16, 16, 8, 32, 90},
                                         Case{GateKind::gdn, DType::bf16, 16, 1, 16, 70, 64},
                                         Case{GateKind::gdn, DType::f32, 16, 4, 32, 60},
                                         Case{GateKind::kda, DType::bf16, 16, 8, 32, 60},
                                         Case{GateKind::kda, DType::bf16, 16, 1, 16, 70, 64},
                                         Case{GateKind::kda, DType::f32, 16, 5, 32, 50},
                                         Case{GateKind::gdn, DType::bf16, 8, 8, 16, 50},
                                         Case{GateKind::kda, DType::f32, 8, 3, 16, 30},
                                         Case{GateKind::kda, DType::bf16, 8, 8, 16, 30},
                                         Case{GateKind::gdn, DType::f32, 32, 16, 64, 100},
                                         Case{GateKind::gdn, DType::bf16, 32, 8, 64, 80},
                                         Case{GateKind::kda, DType::bf16, 32, 7, 64, 80, 64},
                                         Case{GateKind::gdn, DType::bf16, 1, 1, 1, 5},
                                         Case{GateKind::kda, DType::bf16, 1, 1, 1, 5}));

// Blocks run one after the other here: were the tail's keys and decays appended by a head that is
// done, its siblings would read them in the place of pending ones.
TEST(EmulatedChunkRing, OneThatHoldsNoMoreThanWhatIsPendingWillDo) {
  ImageOptions o;
  o.heads = {GateKind::gdn, 1, 3};
  o.state = DType::bf16;
  o.fold_block = 8;
  o.ring_rows = 8;
  o.window = 16;
  const Image before = make_image(o, {8}, {8});
  o.ring_rows = 64;
  Image roomy = make_image(o, {8}, {8});
  Image tight = before;
  for (Image* m : {&tight, &roomy}) {
    StepGeometry geometry = m->geometry();
    geometry.window_max = 1;
    const auto plan = plan_chunk_prefill(geometry, kFewBlocks);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    run_chunk_prefill(*plan, *m);
  }
  EXPECT_EQ(tight.out, roomy.out);
  EXPECT_EQ(tight.states, roomy.states);
}

}  // namespace
}  // namespace replayssm::cuda::test
