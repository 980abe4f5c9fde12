// Fault A15 (sgl-project/sglang#33773, #36770, #40128) with the prefix cache: slots run out when a
// fold is due, because the cache holds what is left of them. It gives way, a publication is
// skipped, or a row waits; nothing aborts and no request fails.
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "cached_engine.h"

namespace replayssm {
namespace {

void expect_served(const EngineOptions& options, std::int64_t host_bytes, int choices) {
  CachedEngine cached(options, 16, host_bytes);
  const int slots = options.max_running_requests + 2 * cached.engine->plan().kept_rows;
  ASSERT_EQ(cached.engine->memory().slots().slots(), slots);
  int most_used = 0;
  for (unsigned i = 0; i < (tests::kSanitized ? 4 : 12); ++i) {
    const auto prompt = cached.prompt(28 + static_cast<int>(i), i % 4);
    const auto expected = solo(options, prompt, 70);
    GenerationRequest request{prompt, greedy(), 70, true};
    request.choices = choices;
    ASSERT_TRUE(cached.scheduler->submit(request).ok());
    ASSERT_TRUE(cached.scheduler->submit({cached.prompt(50, 90 + i), greedy(), 70, true}).ok());
    while (!cached.scheduler->idle()) {
      auto events = cached.scheduler->step();
      ASSERT_TRUE(events.ok()) << events.error().message;
      most_used = std::max(most_used, cached.engine->memory().slots().used());
      for (const Finished& finished : events->finished) {
        EXPECT_EQ(finished.reason, FinishReason::length)
            << (finished.error ? finished.error->message : "");
        if (finished.prompt_tokens != static_cast<int>(prompt.size())) continue;
        EXPECT_EQ(finished.output, expected);
      }
    }
  }
  if (options.recurrence == Recurrence::replay) {
    EXPECT_EQ(most_used, slots) << "they did run out";
  }
  EXPECT_GT(cached.cache.evictions(), 0);
  cached.expect_nothing_held();
}

TEST(A15, ACacheThatHoldsEverySlotGivesWayToADueFold) {
  for (const Recurrence recurrence : {Recurrence::replay, Recurrence::packed}) {
    for (const std::int64_t host : {std::int64_t{0}, std::int64_t{1} << 26}) {
      EngineOptions options = cached_options(1);
      options.recurrence = recurrence;
      options.max_running_requests = 2;
      expect_served(options, host, 1);
      options.max_running_requests = 4;
      expect_served(options, host, 3);
    }
  }
}

// The number of bytes that a refusal names.
std::int64_t least_memory(EngineOptions options) {
  options.memory_budget = 1;
  const std::string message = Engine::create(options).error().message;
  std::smatch bytes;
  EXPECT_TRUE(std::regex_search(message, bytes, std::regex("\\((\\d+) bytes\\) is needed")));
  return std::stoll(bytes[1]);
}

// As little memory as the plan accepts: pages for one context, whoever wants them.
TEST(A15, WithTheLeastMemoryThatThePlanAcceptsEveryRequestIsServed) {
  for (const std::int64_t host : {std::int64_t{0}, std::int64_t{1} << 26}) {
    EngineOptions options = cached_options(2);
    options.max_running_requests = 2;
    options.context_length = 96;
    options.fold_block = 8;  // checkpoints inside pages
    options.memory_budget = least_memory(options);
    CachedEngine cached(options, 16, host);
    ASSERT_EQ(cached.engine->memory().pages().pages(), 6);
    const auto prompt = cached.prompt(95, 1);
    const auto expected = solo(options, prompt, 1);
    // A whole context and again, so that what is kept leaves no page for who goes on from it.
    for (int i = 0; i < 3; ++i) {
      const Finished finished = cached.ask(prompt, 1);
      EXPECT_EQ(finished.reason, FinishReason::length);
      EXPECT_EQ(finished.output, expected);
    }
    for (unsigned i = 0; i < 6; ++i) {
      for (unsigned j = 0; j < 3; ++j) {
        const auto other = joined(first_tokens(prompt, 40), cached.prompt(10, 10 * i + j));
        ASSERT_TRUE(cached.scheduler->submit({other, greedy(), 40, true}).ok());
      }
      for (const Finished& finished : run_all(*cached.scheduler)) {
        EXPECT_EQ(finished.reason, FinishReason::length)
            << (finished.error ? finished.error->message : "");
      }
    }
    cached.expect_nothing_held();
  }
}

}  // namespace
}  // namespace replayssm
