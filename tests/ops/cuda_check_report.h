// What cuda_step_check compares, and what came out.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <string>

#include "cuda_step_expect.h"

namespace replayssm::cuda::test {

// The worst of every group of comparisons, and the first faults. Thread-safe while it collects.
class Report {
 public:
  void add(const std::string& group, const Worst& worst, const std::string& what) {
    const std::lock_guard lock(mutex_);
    Line& line = lines_[group];
    ++line.cases;
    line.worst.output = std::max(line.worst.output, worst.output);
    line.worst.correction = std::max(line.worst.correction, worst.correction);
    line.worst.state = std::max(line.worst.state, worst.state);
    if (!worst.fault.empty()) {
      if (line.faults++ < 3) {
        std::printf("FAULT %s: %s: %s\n", group.c_str(), what.c_str(), worst.fault.c_str());
      }
    }
  }
  void add_time(const std::string& kind, double seconds) {
    const std::lock_guard lock(mutex_);
    seconds_[kind] += seconds;
  }
  // A table and how long each kind of jobs took all together on standard output, and, unless `json`
  // is empty, that file. Returns the faults.
  int print(const std::string& json) const {
    int faults = 0;
    std::string text;
    std::printf("%-44s %6s %7s %10s %10s %10s\n", "group", "cases", "faults", "output", "d",
                "state");
    for (const auto& [name, line] : lines_) {
      std::printf("%-44s %6d %7d %10.2e %10.2e %10.2e\n", name.c_str(), line.cases, line.faults,
                  line.worst.output, line.worst.correction, line.worst.state);
      text += fmt::format(
          "{}  {{\"group\": \"{}\", \"cases\": {}, \"faults\": {}, \"output_error\": {:.3g}, "
          "\"correction_error\": {:.3g}, \"state_error\": {:.3g}}}",
          text.empty() ? "" : ",\n", name, line.cases, line.faults, line.worst.output,
          line.worst.correction, line.worst.state);
      faults += line.faults;
    }
    for (const auto& [kind, seconds] : seconds_) {
      std::printf("%-10s %6.1f thread s\n", kind.c_str(), seconds);
    }
    if (!json.empty()) std::ofstream(json) << "[\n" << text << "\n]\n";
    return faults;
  }

 private:
  struct Line {
    int cases = 0, faults = 0;
    Worst worst;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Line> lines_;
  std::map<std::string, double> seconds_;
};

// What a group of comparisons is made with.
struct Config {
  GateKind gate;
  DType state;
  int fold_block;
  HeadShape heads;
  std::string name() const {
    return fmt::format("{} {} L={}", gate == GateKind::gdn ? "gdn" : "kda", name_of(state),
                       fold_block);
  }
  std::string heads_name() const {
    return fmt::format("{}/{} heads", heads.value_heads, heads.key_heads);
  }
};

inline ImageOptions options(const Config& c, int entries, std::uint64_t seed, int window = 1) {
  ImageOptions o;
  o.heads = c.heads;
  o.heads.gate = c.gate;
  o.state = c.state;
  o.fold_block = c.fold_block;
  o.ring_rows = 2 * c.fold_block;
  while (o.ring_rows < c.fold_block + 2 * window - 1) o.ring_rows *= 2;
  o.window = window;
  o.entries = entries;
  o.seed = seed;
  return o;
}

}  // namespace replayssm::cuda::test
