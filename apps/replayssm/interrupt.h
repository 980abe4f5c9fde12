// Ctrl-C as a question instead of a death.
#pragma once

namespace replayssm::cli {

// While one exists, SIGINT and SIGTERM set a flag; a second SIGINT ends the program at once. One at
// a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool interrupted() const;
  void clear();
};

}  // namespace replayssm::cli
