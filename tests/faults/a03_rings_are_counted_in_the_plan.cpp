// Fault A03 (sgl-project/sglang#28451): the bytes of the record ring are missing from the memory
// budget, and the engine runs out of memory after its start.
#include <gtest/gtest.h>

#include "small_engine.h"

namespace replayssm {
namespace {

TEST(A03, ABudgetOfWeightsStateAndKvWithoutRingsIsRefusedWithTheNumbers) {
  EngineOptions options = small_options();
  options.recurrence = Recurrence::packed;
  const auto without = make_engine(options);
  // Exactly what is needed with replay off: one context of pages for all.
  const SequenceLayout& layout = without->memory().layout();
  const std::int64_t spare =
      (without->plan().pages - layout.pages_for(options.context_length)) * layout.page_bytes();
  options.memory_budget = without->plan().used - spare;
  ASSERT_TRUE(Engine::create(options).ok());

  options.recurrence = Recurrence::replay;
  const auto refused = Engine::create(options);
  ASSERT_FALSE(refused.ok());
  for (const char* part : {"weights", "state", "records", "conv inputs", "KV", "at least"}) {
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << part;
  }
  SequenceLayout replay = layout;
  replay.recurrence = Recurrence::replay;
  options.memory_budget += options.max_running_requests * replay.ring_bytes_per_row();
  const auto engine = make_engine(options);
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->plan().used, options.memory_budget) << "to the byte";
  EXPECT_EQ(engine->memory().rows().ring_bytes(), 4 * replay.ring_bytes_per_row());
}

}  // namespace
}  // namespace replayssm
