#include "ceilings.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "core/aligned_buffer.h"
#include "stopwatch.h"

namespace replayssm::bench {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 16;  // floats a task handles

double median_gb_per_s(ThreadPool& pool, std::size_t floats, double bytes,
                       const std::function<void(std::size_t begin, std::size_t end)>& pass) {
  const std::size_t blocks = floats / kBlock;
  const double us = median_us(9, [&] {
    pool.parallel_for(blocks,
                      [&](std::size_t block, int) { pass(block * kBlock, (block + 1) * kBlock); });
  });
  return bytes / us * 1e-3;
}

constexpr std::size_t kStreams = 8;
constexpr std::size_t kLine = 16;    // floats of a cache line
constexpr std::size_t kAhead = 512;  // floats that a line is fetched ahead

// Visits the lines of [begin, end) in eight streams side by side, each fetched ahead: one core then
// waits for several lines at once, which a single stream does not make it do.
template <class Visit>
void in_streams(const float* data, std::size_t begin, std::size_t end, Visit&& visit) {
  const std::size_t length = (end - begin) / kStreams;
  for (std::size_t at = 0; at < length; at += kLine) {
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      const std::size_t line = begin + stream * length + at;
      __builtin_prefetch(data + line + kAhead);
      visit(line);
    }
  }
}

}  // namespace

std::size_t last_level_cache_bytes() {
  long best = 0;
  for (int name : {_SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL4_CACHE_SIZE}) {
    best = std::max(best, sysconf(name));
  }
  return best > 0 ? static_cast<std::size_t>(best) : std::size_t{32} << 20;
}

Ceilings measure_ceilings(ThreadPool& pool, std::size_t bytes) {
  const std::size_t blocks = std::max<std::size_t>(bytes / sizeof(float) / kBlock, 64);
  const std::size_t floats = blocks * kBlock;
  AlignedBuffer<float> from(floats);
  AlignedBuffer<float> to(floats);
  const double moved = 2.0 * static_cast<double>(floats) * sizeof(float);
  // The best of two ways each: a ceiling is what the memory can do, not what one loop does.
  const auto best = [&](const auto& plain, const auto& streams) {
    return std::max(median_gb_per_s(pool, floats, moved, plain),
                    median_gb_per_s(pool, floats, moved, streams));
  };
  const auto update = [&](std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) from[i] = from[i] * 0.999f + 1e-3f;
  };
  Ceilings ceilings;
  ceilings.copy_gb_per_s = best(
      [&](std::size_t begin, std::size_t end) {
        std::copy(from.data() + begin, from.data() + end, to.data() + begin);
      },
      [&](std::size_t begin, std::size_t end) {
        in_streams(from.data(), begin, end, [&](std::size_t line) {
          std::copy(from.data() + line, from.data() + line + kLine, to.data() + line);
        });
      });
  ceilings.update_gb_per_s =
      best([&](std::size_t begin, std::size_t end) { update(begin, end - begin); },
           [&](std::size_t begin, std::size_t end) {
             in_streams(from.data(), begin, end, [&](std::size_t line) { update(line, kLine); });
           });
  return ceilings;
}

}  // namespace replayssm::bench
