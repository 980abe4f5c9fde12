#include "core/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace replayssm {
namespace {

TEST(ThreadPool, EveryIndexIsCalledOnceAndItsWritesAreSeen) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    std::vector<int> calls;  // plain memory: the pool orders the accesses
    for (int round = 0; round < 500; ++round) {
      const auto tasks = static_cast<std::size_t>(round % 17);
      calls.assign(tasks, 0);
      pool.parallel_for(tasks, [&](std::size_t i, int thread) {
        EXPECT_TRUE(thread >= 0 && thread < threads);
        ++calls[i];
      });
      EXPECT_EQ(calls, std::vector<int>(tasks, 1));
    }
  }
}

TEST(ThreadPool, WorkersThatWentToSleepAreWoken) {
  ThreadPool pool(2);
  for (int round = 0; round < 10; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::vector<int> calls(8, 0);
    pool.parallel_for(8, [&](std::size_t i, int) { ++calls[i]; });
    EXPECT_EQ(std::accumulate(calls.begin(), calls.end(), 0), 8);
  }
}

TEST(ThreadPool, ACallerThatOutwaitsItsPatienceStillReturns) {
  ThreadPool pool(2);
  std::vector<int> calls(2, 0);
  pool.parallel_for(2, [&](std::size_t i, int) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5 * (1 + i)));
    ++calls[i];
  });
  EXPECT_EQ(calls, std::vector<int>(2, 1));
}

TEST(ThreadPool, PoolsComeAndGo) {
  for (int round = 0; round < 200; ++round) {
    ThreadPool pool(1 + round % 4);
    if (round % 3 == 0) continue;  // never used
    int sum = 0;
    pool.parallel_for(1, [&](std::size_t, int) { ++sum; });
    std::vector<int> calls(3, 0);
    pool.parallel_for(3, [&](std::size_t i, int) { ++calls[i]; });
    EXPECT_EQ(sum + std::accumulate(calls.begin(), calls.end(), 0), 4);
  }
}

}  // namespace
}  // namespace replayssm
