#include "core/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace replayssm {

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable done;
  std::uint64_t generation = 0;  // counts parallel_for calls; workers wait for it to move
  int working = 0;               // workers that have not finished this generation
  bool stopping = false;
  const std::function<void(std::size_t, int)>* task = nullptr;
  std::size_t tasks = 0;
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> workers;

  void drain(int thread) {
    for (std::size_t i = next.fetch_add(1); i < tasks; i = next.fetch_add(1)) (*task)(i, thread);
  }

  void work(int thread) {
    std::uint64_t seen = 0;
    while (true) {
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return stopping || generation != seen; });
        if (stopping) return;
        seen = generation;
      }
      drain(thread);
      std::lock_guard lock(mutex);
      if (--working == 0) done.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads <= 0) threads = available_cores();
  for (int i = 1; i < threads; ++i) {
    state_->workers.emplace_back([state = state_.get(), i] { state->work(i); });
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::parallel_for(std::size_t tasks,
                              const std::function<void(std::size_t, int)>& task) {
  State& s = *state_;
  if (s.workers.empty() || tasks <= 1) {
    for (std::size_t i = 0; i < tasks; ++i) task(i, 0);
    return;
  }
  {
    std::lock_guard lock(s.mutex);
    s.task = &task;
    s.tasks = tasks;
    s.next = 0;
    s.working = static_cast<int>(s.workers.size());
    ++s.generation;
  }
  s.wake.notify_all();
  s.drain(0);
  std::unique_lock lock(s.mutex);
  s.done.wait(lock, [&] { return s.working == 0; });
}

}  // namespace replayssm
