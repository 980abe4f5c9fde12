// Faults D02 (noonghunna/club-3090#896, #920) and G01 (Neroued/ninfer#80): equal greedy requests
// give several answers, because of what else is in the batch or how many tokens a step has. Exact
// with
// --deterministic, whatever joins when.
#include <gtest/gtest.h>

#include "small_engine.h"

namespace replayssm {
namespace {

TEST(D02, FourEqualRequestsAtOnceGiveOneAnswer) {
  EXPECT_EQ(answers(small_options(), 4, 4).size(), 1u);
}

}  // namespace
}  // namespace replayssm
