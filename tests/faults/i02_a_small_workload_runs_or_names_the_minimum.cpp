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
  const std::string said = "at least ";
  const std::size_t at = message.find(said);
  ASSERT_NE(at, std::string::npos) << message;
  const std::size_t from = at + said.size();
  std::string minimum = message.substr(from, message.find(" is needed") - from);
  std::erase(minimum, ' ');
  // The message rounds to a tenth of its unit.
  options.memory_budget = static_cast<std::int64_t>(
      static_cast<double>(parse_bytes("minimum", minimum).value()) * 1.02);
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
