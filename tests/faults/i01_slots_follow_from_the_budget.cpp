// Fault I01 (vllm-project/vllm-metal#398): 256 slots of 64.4 MB, 16.5 GB, are reserved up front
// whatever the machine has.
#include <gtest/gtest.h>

#include <algorithm>

#include "small_engine.h"

namespace replayssm {
namespace {

TEST(I01, AsManyRequestsAsTheBudgetHoldsAndEverySlotIsInTheTable) {
  EngineOptions options = small_options();
  options.max_running_requests = 1;
  options.step_tokens = 256;
  options.logit_rows = 256;
  const auto one = make_engine(options);
  const SequenceLayout& layout = one->memory().layout();
  const std::int64_t a_request = layout.slot_bytes() + layout.ring_bytes_per_row() +
                                 layout.conv_ring_bytes_per_row() + layout.cursor_bytes_per_row() +
                                 layout.pages_for(256) * layout.page_bytes();
  options.max_running_requests = 0;
  for (const int fitting : {1, 2, 5}) {
    options.memory_budget = one->plan().used + (fitting - 1) * a_request;
    const auto engine = make_engine(options);
    ASSERT_TRUE(engine);
    EXPECT_EQ(engine->plan().rows, fitting);
    EXPECT_EQ(engine->memory().slots().slots(), fitting);
    EXPECT_LE(engine->plan().used, options.memory_budget);
    const auto line = std::find_if(engine->plan().lines.begin(), engine->plan().lines.end(),
                                   [](const MemoryLine& l) { return l.name == "state slots"; });
    ASSERT_NE(line, engine->plan().lines.end());
    EXPECT_EQ(line->note, fmt::format("{} x {}", fitting, format_bytes(layout.slot_bytes())));
  }
}

}  // namespace
}  // namespace replayssm
