// Wall-clock medians.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace replayssm::bench {

// Runs `body` once to warm up and then `passes` times; the median in microseconds.
template <class Body>
double median_us(int passes, Body&& body) {
  body();
  std::vector<double> us;
  for (int i = 0; i < passes; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    const auto stop = std::chrono::steady_clock::now();
    us.push_back(std::chrono::duration<double, std::micro>(stop - start).count());
  }
  std::sort(us.begin(), us.end());
  return us[us.size() / 2];
}

}  // namespace replayssm::bench
