// What is shown while the program works.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace replayssm::cli {

// "replayssm: MESSAGE" on standard error.
void print_error(std::string_view message);

// Text to standard output, at once.
void print_now(std::string_view text);

// A line on standard error that counts up. It appears only on a terminal, and only once the work
// has taken longer than a second; done() takes it away again.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what);
  ~ProgressLine() { done(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(long done, long total);
  void done();

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point shown_at_{};
  bool terminal_;
  bool shown_ = false;
};

}  // namespace replayssm::cli
