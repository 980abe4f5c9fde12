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
  Ceilings ceilings;
  ceilings.copy_gb_per_s =
      median_gb_per_s(pool, floats, moved, [&](std::size_t begin, std::size_t end) {
        std::copy(from.data() + begin, from.data() + end, to.data() + begin);
      });
  ceilings.update_gb_per_s =
      median_gb_per_s(pool, floats, moved, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) from[i] = from[i] * 0.999f + 1e-3f;
      });
  return ceilings;
}

}  // namespace replayssm::bench
