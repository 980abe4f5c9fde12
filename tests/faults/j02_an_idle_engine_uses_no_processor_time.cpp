// Fault J02 (InternLM/lmdeploy#4426): a core is kept busy while there is nothing to do. The
// engine's thread and those of the backend sleep until a request comes.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "listener.h"
#include "processor_time.h"
#include "small_engine.h"

namespace replayssm {
namespace {

TEST(J02, AnIdleServiceUsesLessThanAHundredthOfACore) {
  ServiceOptions options;
  options.engine = small_options();
  options.engine.threads = 3;
  const auto service = EngineService::start(options);
  ASSERT_TRUE(service.ok());
  for (const bool warm : {false, true}) {
    if (warm) {
      const auto listener = Listener::make();
      (*service)->submit({{1, 2, 3}, greedy(), 20, true}, Listener::handler(listener));
      ASSERT_TRUE(listener->wait());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // they go to sleep
    constexpr double kSeconds = 0.5;
    const double before = processor_seconds();
    std::this_thread::sleep_for(std::chrono::duration<double>(kSeconds));
    EXPECT_LT(processor_seconds() - before, 0.01 * kSeconds) << (warm ? "after a request" : "");
  }
}

}  // namespace
}  // namespace replayssm
