// Memory that a thread will read soon, asked for a few cache lines at a time while it works on
// something else: the next head's pending records, which lie scattered and are needed all at once,
// and its state. It changes no result. Measured in docs/adr/0004-cpu-state-layout-and-decays.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace replayssm::cpu {

class FetchAhead {
 public:
  void clear() { first_ = count_ = 0; }

  // Adds `bytes` bytes from `begin` on; beyond kRuns runs nothing is added. They need not exist.
  void add(const void* begin, std::size_t bytes) {
    if (count_ == kRuns || bytes == 0) return;
    constexpr std::uintptr_t kMask = kLine - 1;
    const auto from = reinterpret_cast<std::uintptr_t>(begin) & ~kMask;
    const auto to = (reinterpret_cast<std::uintptr_t>(begin) + bytes + kMask) & ~kMask;
    runs_[count_++] = {reinterpret_cast<const char*>(from), static_cast<int>((to - from) / kLine)};
  }

  // Asks for the next `lines` cache lines.
  void fetch(int lines) {
    while (lines > 0 && first_ < count_) {
      Run& run = runs_[first_];
      const int some = std::min(lines, run.lines);
      for (int i = 0; i < some; ++i) __builtin_prefetch(run.at + i * kLine);
      run.at += some * kLine;
      run.lines -= some;
      lines -= some;
      if (run.lines == 0) ++first_;
    }
  }

 private:
  static constexpr int kLine = 64;
  // A head's state; keys, corrections and decays of its pending records and of those that a window
  // adds; five arrays' parts of a window's tokens.
  static constexpr int kRuns = 1 + 3 * 64 + 5 * 16;
  struct Run {
    const char* at;
    int lines;
  };
  std::array<Run, kRuns> runs_;
  int first_ = 0;
  int count_ = 0;
};

}  // namespace replayssm::cpu
