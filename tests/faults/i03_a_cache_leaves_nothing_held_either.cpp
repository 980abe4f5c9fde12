// Fault I03 (sgl-project/sglang#16067, #21404, #12693, #20182, #20185) with the prefix cache: five
// hundred requests that finish, are cancelled, stop, pause and fail, with shared prefixes, several
// choices and a host memory that overflows.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <random>

#include "cached_engine.h"
#include "test_checkpoint.h"

namespace replayssm {
namespace {

constexpr TokenId kPoisoned = 5;  // its embedding is NaN: a prompt with it ends with an error

void poison(EditableTensors& tensors) {
  for (auto& [name, tensor] : tensors) {
    if (name.find("embed_tokens.weight") == std::string::npos) continue;
    std::vector<float> values = values_of(tensor);
    const auto hidden = static_cast<std::ptrdiff_t>(tensor.shape[1]);
    std::fill_n(values.begin() + kPoisoned * hidden, hidden,
                std::numeric_limits<float>::quiet_NaN());
    set_values(tensor, values);
  }
}

TEST(I03, WithACacheFiveHundredRequestsOfEveryEndLeaveNothingHeld) {
  TestCheckpoint checkpoint("ratio3_bfloat16_flat_untied");
  checkpoint.edit_tensors(poison);
  EngineOptions options = cached_options(4);
  options.model_path = checkpoint.path();
  CachedEngine cached(options, 16, 1 << 20, SchedulePolicy::priority);
  Scheduler& scheduler = *cached.scheduler;
  std::mt19937 random(1);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const int requests = tests::rounds(500);
  std::vector<GenerationId> ids;
  std::array<int, 4> ends{};
  for (int i = 0; i < requests || !scheduler.idle(); ++i) {
    if (i < requests) {
      GenerationRequest request{
          joined(cached.prompt(20 * below(3), static_cast<unsigned>(below(3))),
                 cached.prompt(1 + below(30), 100u + static_cast<unsigned>(i))),
          {},
          1 + below(12),
          false};
      std::replace(request.prompt.begin(), request.prompt.end(), kPoisoned, kPoisoned + 1);
      if (below(10) == 0) request.prompt.back() = kPoisoned;
      request.logit_bias = {{kPoisoned, -1e9F}};
      request.sampling.temperature = below(2) == 0 ? 0.0 : 50.0;
      request.sampling.seed = static_cast<std::uint64_t>(i);
      request.choices = below(6) == 0 ? 1 + below(4) : 1;
      request.priority = below(3);
      request.prompt_logprobs = below(10) == 0;
      ids.push_back(scheduler.submit(std::move(request)).value());
    }
    const GenerationId some = ids[static_cast<std::size_t>(below(static_cast<int>(ids.size())))];
    if (below(4) == 0) scheduler.cancel(some);
    if (below(4) == 0) scheduler.stop_choice(ids.back(), below(2), below(4));
    if (below(60) == 0) cached.cache.clear();
    const auto events = scheduler.step();
    ASSERT_TRUE(events.ok()) << events.error().message;
    for (const Finished& finished : events->finished) {
      ++ends[static_cast<std::size_t>(finished.reason)];
      EXPECT_FALSE(finished.sequence.memory) << "a cache has it, or nobody";
      if (!finished.error) continue;
      EXPECT_NE(finished.error->message.find("finite"), std::string::npos)
          << finished.error->message;
    }
  }
  for (const int count : ends) EXPECT_GT(count, 0);
  EXPECT_GT(scheduler.counters().preemptions, 0);
  EXPECT_GT(cached.cache.evictions(), 0);
  cached.expect_nothing_held();
}

}  // namespace
}  // namespace replayssm
