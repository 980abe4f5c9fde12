// Fault I02 (modular/modular#7145): a pool is too small for a small workload, and the failure does
// not say what would do.
#include <gtest/gtest.h>

#include "small_engine.h"

namespace replayssm {
namespace {

TEST(I02, OneRequestRunsInTheMinimumThatARefusalNames) {
  EngineOptions options = small_options();
  options.max_running_requests = 1;
  options.context_length = 1024;
  options.memory_budget = 1024;
  const auto refused = Engine::create(options);
  ASSERT_FALSE(refused.ok());
  const std::string& message = refused.error().message;
  const std::size_t end = message.find(" bytes) is needed");
  ASSERT_NE(end, std::string::npos) << message;
  const std::size_t begin = message.rfind('(', end) + 1;
  options.memory_budget = std::stoll(message.substr(begin, end - begin)) - 1;
  EXPECT_FALSE(Engine::create(options).ok());
  ++options.memory_budget;
  const auto engine = make_engine(options);
  ASSERT_TRUE(engine);
  Scheduler scheduler(*engine);
  ASSERT_TRUE(scheduler.submit({random_prompt(*engine, 1000, 1), greedy(), 24, true}).ok());
  const auto finished = run_all(scheduler);
  EXPECT_EQ(finished.front().reason, FinishReason::length);
  EXPECT_EQ(finished.front().output.size(), 24u);
}

}  // namespace
}  // namespace replayssm
