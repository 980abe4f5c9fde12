// The one set of threads that all computation shares.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace replayssm {

// A fixed number of worker threads. `parallel_for` is called by one thread at a time (the engine
// thread); it returns after every task has finished, and what the tasks wrote is visible then.
// Which thread runs which task never changes a result: tasks write disjoint memory.
class ThreadPool {
 public:
  // `threads` >= 1, the calling thread included. 0 means one for each core that this process may
  // use.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls `task(index, thread)` for every index in [0, tasks), thread in [0, threads()). Tasks are
  // handed out in ascending order. A task must not call parallel_for, and must not throw.
  void parallel_for(std::size_t tasks, const std::function<void(std::size_t, int)>& task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Cores this process may run on (its affinity mask), at least 1.
int available_cores();

}  // namespace replayssm
