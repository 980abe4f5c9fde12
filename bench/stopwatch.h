// Wall-clock times and medians.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace replayssm::bench {

// Microseconds that `body` takes.
template <class Body>
double elapsed_us(Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  const auto stop = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::micro>(stop - start).count();
}

// The middle of at least one value.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Runs `body` once to warm up and then `passes` times; the median in microseconds.
template <class Body>
double median_us(int passes, Body&& body) {
  body();
  std::vector<double> us;
  for (int i = 0; i < passes; ++i) us.push_back(elapsed_us(body));
  return median(std::move(us));
}

}  // namespace replayssm::bench
