// Fault J02 (InternLM/lmdeploy#4426): a core is kept busy while there is nothing to do. Worker
// threads look for work a moment after a call and then sleep.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/thread_pool.h"
#include "processor_time.h"

namespace replayssm {
namespace {

TEST(J02, AnIdlePoolUsesLessThanAHundredthOfACore) {
  ThreadPool pool(available_cores());
  pool.parallel_for(8, [](std::size_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // they go to sleep
  constexpr double kSeconds = 0.5;
  const double before = processor_seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(kSeconds));
  EXPECT_LT(processor_seconds() - before, 0.01 * kSeconds);
}

}  // namespace
}  // namespace replayssm
