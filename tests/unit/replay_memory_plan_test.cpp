#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "replay/memory_plan.h"

namespace replayssm {
namespace {

MemoryNeeds small() {
  MemoryNeeds needs;
  needs.budget = 1000000;
  needs.weights = 100000;
  needs.workspace = 5000;
  needs.slot = 2000;
  needs.ring_per_row = 300;
  needs.conv_ring_per_row = 100;
  needs.kv_per_token = 10;
  needs.page_tokens = 16;
  needs.context_length = 1000;
  return needs;
}

TEST(MemoryPlan, LinesAddUpAndNeverPassTheBudget) {
  for (std::int64_t budget = 118000; budget < 400000; budget += 777) {
    MemoryNeeds needs = small();
    needs.budget = budget;
    const auto plan = plan_memory(needs);
    if (!plan.ok()) continue;
    const std::int64_t sum = std::accumulate(
        plan->lines.begin(), plan->lines.end(), std::int64_t{0},
        [](std::int64_t total, const MemoryLine& line) { return total + line.bytes; });
    EXPECT_EQ(sum, plan->used);
    EXPECT_LE(plan->used, budget);
    EXPECT_EQ(plan->used, 105000 + plan->slots * 2000 + plan->rows * 400 + plan->pages * 160);
    EXPECT_GE(plan->pages * 16, 1000);
  }
}

TEST(MemoryPlan, FitsExactlyAtTheSmallestBudgetAndRefusesOneByteBelow) {
  MemoryNeeds needs = small();
  // weights + workspace + one row + 63 pages of 16 tokens
  needs.budget = 100000 + 5000 + 2400 + 63 * 160;
  const auto plan = plan_memory(needs);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->rows, 1);
  EXPECT_EQ(plan->pages, 63);
  EXPECT_EQ(plan->used, needs.budget);
  needs.budget -= 1;
  const auto refused = plan_memory(needs);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("at least 114.7 KiB (117480 bytes) is needed"),
            std::string::npos)
      << refused.error().message;
  EXPECT_NE(refused.error().message.find("records 300 B"), std::string::npos);
}

TEST(MemoryPlan, AModelWithoutKeysAndValuesHasNoPages) {
  MemoryNeeds needs = small();
  needs.kv_per_token = 0;
  for (const int context : {1000, 1 << 30}) {
    needs.context_length = context;
    EXPECT_EQ(plan_memory(needs)->pages, 0);
  }
}

TEST(MemoryPlan, PagesStayWithinTheirIds) {
  MemoryNeeds needs = small();
  needs.max_running_requests = 256;
  needs.kv_per_token = 1;
  needs.context_length = 1 << 30;
  needs.budget = std::int64_t{1} << 50;
  EXPECT_EQ(plan_memory(needs)->pages, std::numeric_limits<std::int32_t>::max());
}

TEST(MemoryPlan, CountsTheRings) {
  MemoryNeeds needs = small();
  needs.max_running_requests = 8;
  const auto with = plan_memory(needs);
  needs.ring_per_row = 0;
  const auto without = plan_memory(needs);
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_EQ(with->used - without->used, 8 * 300);
}

TEST(MemoryPlan, HonoursTheNumberOfRequestsAskedFor) {
  MemoryNeeds needs = small();
  needs.max_running_requests = 5;
  const auto plan = plan_memory(needs);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->rows, 5);
  EXPECT_EQ(plan->pages, 5 * 63);
  needs.max_running_requests = 1000;
  EXPECT_FALSE(plan_memory(needs).ok());
}

TEST(ParseBytes, AcceptsUnitsAndNamesWhatItRefuses) {
  EXPECT_EQ(parse_bytes("--memory", "24GiB").value(), 24LL << 30);
  EXPECT_EQ(parse_bytes("--memory", "512MiB").value(), 512LL << 20);
  EXPECT_EQ(parse_bytes("--memory", "1.5GB").value(), 1500000000LL);
  EXPECT_EQ(parse_bytes("--memory", "4096").value(), 4096);
  for (const char* bad : {"", "GiB", "-1GiB", "0", "12 GiB", "1e99GiB", "nan", "24gigs"}) {
    const auto refused = parse_bytes("--memory", bad);
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_EQ(refused.error().message.rfind("--memory: ", 0), 0u);
  }
}

}  // namespace
}  // namespace replayssm
