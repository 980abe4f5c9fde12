#include "core/thread_pool.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

namespace replayssm {

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

namespace {

// How often a waiting thread looks before it sleeps: some 50 us. Waking a sleeper costs 25 us or
// more, as long as a matrix product of a small model takes; between the calls of one step it is
// rarely worth going to sleep.
constexpr int kLooks = 2000;

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Whether `ready` came true while looking.
template <class Ready>
bool look_for(int looks, Ready&& ready) {
  for (int i = 0; i < looks; ++i) {
    if (ready()) return true;
    pause_briefly();
  }
  return ready();
}

}  // namespace

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable done;
  std::atomic<std::uint64_t> generation{0};  // counts parallel_for calls; workers wait for the next
  std::atomic<int> working{0};               // workers that have not finished this generation
  std::atomic<bool> stopping{false};
  int looks = 0;
  // Written before `generation` moves, read after a thread has seen it move.
  const std::function<void(std::size_t, int)>* task = nullptr;
  std::size_t tasks = 0;
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> workers;

  // Ends and joins the workers there are.
  void stop() {
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  void drain(int thread) {
    for (std::size_t i = next.fetch_add(1); i < tasks; i = next.fetch_add(1)) (*task)(i, thread);
  }

  void work(int thread) {
    std::uint64_t seen = 0;
    const auto called = [&] { return stopping.load() || generation.load() != seen; };
    while (true) {
      if (!look_for(looks, called)) {
        std::unique_lock lock(mutex);
        wake.wait(lock, called);
      }
      if (stopping.load()) return;
      seen = generation.load();
      drain(thread);
      if (working.fetch_sub(1) == 1) {
        { std::lock_guard lock(mutex); }  // not between the caller's last look and its sleep
        done.notify_one();
      }
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads <= 0) threads = available_cores();
  // More threads than cores: looking would keep others from working.
  state_->looks = threads <= available_cores() ? kLooks : 0;
  try {
    for (int i = 1; i < threads; ++i) {
      state_->workers.emplace_back([state = state_.get(), i] { state->work(i); });
    }
  } catch (const std::system_error&) {
    state_->stop();
    throw std::runtime_error(
        fmt::format("threads: {} is not accepted; expected a number that this machine can start "
                    "(it started {})",
                    threads, state_->workers.size() + 1));
  }
}

ThreadPool::~ThreadPool() { state_->stop(); }

int ThreadPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::parallel_for(std::size_t tasks,
                              const std::function<void(std::size_t, int)>& task) {
  State& s = *state_;
  if (s.workers.empty() || tasks <= 1) {
    for (std::size_t i = 0; i < tasks; ++i) task(i, 0);
    return;
  }
  s.task = &task;
  s.tasks = tasks;
  s.next = 0;
  s.working = static_cast<int>(s.workers.size());
  {
    std::lock_guard lock(s.mutex);
    ++s.generation;
  }
  s.wake.notify_all();
  s.drain(0);
  const auto finished = [&] { return s.working.load() == 0; };
  if (look_for(s.looks, finished)) return;
  std::unique_lock lock(s.mutex);
  s.done.wait(lock, finished);
}

}  // namespace replayssm
