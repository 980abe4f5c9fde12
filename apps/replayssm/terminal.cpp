#include "terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace replayssm::cli {

void print_error(std::string_view message) { fmt::print(stderr, "replayssm: {}\n", message); }

void print_now(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

ProgressLine::ProgressLine(std::string what)
    : what_(std::move(what)), terminal_(isatty(STDERR_FILENO) == 1) {}

void ProgressLine::update(long done, long total) {
  using namespace std::chrono_literals;
  const auto now = Clock::now();
  if (!terminal_ || now - start_ < 1s || (shown_ && now - shown_at_ < 100ms)) return;
  constexpr long kWidth = 30;
  const long filled = total > 0 ? std::clamp(done * kWidth / total, 0L, kWidth) : 0;
  fmt::print(stderr, "\r{} [{:<{}}] {}/{}", what_,
             std::string(static_cast<std::size_t>(filled), '#'), kWidth, done, total);
  std::fflush(stderr);
  shown_ = true;
  shown_at_ = now;
}

void ProgressLine::done() {
  if (shown_) fmt::print(stderr, "\r\x1b[K");
  shown_ = false;
}

}  // namespace replayssm::cli
