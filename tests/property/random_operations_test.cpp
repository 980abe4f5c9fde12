// Random windows, chunks, rejections, forks with shared bases, pauses and moves of many sequences
// in changing batches: every sequence gets the bits that it gets alone.
#include <gtest/gtest.h>

#include <cmath>

#include "property/random_sequences.h"

namespace replayssm::tests {
namespace {

class RandomOperations : public testing::TestWithParam<Variant> {};

INSTANTIATE_TEST_SUITE_P(Cpu, RandomOperations, testing::ValuesIn(variants()),
                         [](const auto& test) { return test.param.name; });

TEST_P(RandomOperations, EverySequenceGetsTheBitsThatItGetsAlone) {
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    const OwnedOps owned = cpu_backend().make(static_cast<int>(seed));
    RandomSequences all(GetParam(), *owned.ops, seed);
    for (int i = 0; i < 150 && all.sequences().size() < 12; ++i) all.act();
    int evaluated = 0;
    for (std::size_t i = 0; i < all.sequences().size(); ++i) {
      const LiveSequence& sequence = all.sequences()[i];
      Tokens tokens = sequence.tokens;
      tokens.count = static_cast<int>(sequence.outputs.size() / tokens.out_stride());
      evaluated += tokens.count;
      LayerMemory alone(
          *owned.ops, GetParam().shape,
          FoldGeometry::make(GetParam().block, GetParam().window, RingAccess::shared).value(),
          GetParam().types, 1, 1);
      const Trace expected = run_alone(alone, tokens, {{Route::window, 1}});
      ASSERT_TRUE(same_bits(sequence.outputs, expected.outputs)) << "seed " << seed << ", " << i;
      for (float x : expected.outputs) ASSERT_TRUE(std::isfinite(x));
    }
    EXPECT_GT(evaluated, 200) << "the seed does too little to prove anything";
  }
}

}  // namespace
}  // namespace replayssm::tests
