#include "ceilings.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/aligned_buffer.h"
#include "stopwatch.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace replayssm::bench {
namespace {

using Word = std::uint64_t;
constexpr std::size_t kLine = 64 / sizeof(Word);  // words of a cache line

// How memory is walked through: in blocks that threads take in turn, each in several streams side
// by side, with lines asked for ahead of time. Which way is fastest depends on the processor, its
// pages and the number of threads, so all are tried.
struct Walk {
  std::size_t streams;
  std::size_t ahead;  // bytes; 0: the processor's own prefetchers only
  std::size_t block;  // bytes
};
constexpr Walk kWalks[] = {{1, 0, 256 << 10},
                           {1, 2 << 10, 256 << 10},
                           {1, 4 << 10, 4 << 20},
                           {4, 1 << 10, 256 << 10},
                           {8, 2 << 10, 256 << 10}};

// Calls visit(first word of a line) for every line of [begin, end).
template <class Visit>
void for_each_line(const Walk& walk, const Word* data, std::size_t begin, std::size_t end,
                   Visit&& visit) {
  const std::size_t length = (end - begin) / walk.streams;
  for (std::size_t at = 0; at < length; at += kLine) {
    for (std::size_t stream = 0; stream < walk.streams; ++stream) {
      const std::size_t line = begin + stream * length + at;
      if (walk.ahead != 0) __builtin_prefetch(data + line + walk.ahead / sizeof(Word));
      visit(line);
    }
  }
}

// Past the caches where the processor can: a plain store reads a line before it changes it.
void store_line(Word* to, const Word* from) {
#if defined(__SSE2__)
  for (std::size_t i = 0; i < kLine; i += 2) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
#else
  std::copy_n(from, kLine, to);
#endif
}

class Memory {
 public:
  // Written once: memory that was not is no memory yet, and its reads would be too fast.
  Memory(ThreadPool& pool, std::size_t bytes) : pool_(pool), data_(bytes / sizeof(Word)) {
    data_.fill_bytes(0x3c);
  }

  double read() {
    return best(data_.size(), 1, [this](const Walk& walk, std::size_t begin, std::size_t end) {
      Word sums[kLine] = {};
      for_each_line(walk, data_.data(), begin, end, [&](std::size_t line) {
        for (std::size_t i = 0; i < kLine; ++i) sums[i] ^= data_[line + i];
      });
      Word all = 0;
      for (const Word sum : sums) all ^= sum;
      seen_.fetch_xor(all, std::memory_order_relaxed);  // so that the reads are not left out
    });
  }

  double update() {
    return best(data_.size(), 2, [this](const Walk& walk, std::size_t begin, std::size_t end) {
      for_each_line(walk, data_.data(), begin, end, [&](std::size_t line) {
        for (std::size_t i = 0; i < kLine; ++i) data_[line + i] += 0x9e3779b97f4a7c15;
      });
    });
  }

  // From the first half to the second.
  double copy() {
    const std::size_t half = data_.size() / 2;
    return std::max(best(half, 2,
                         [&](const Walk& walk, std::size_t begin, std::size_t end) {
                           for_each_line(walk, data_.data(), begin, end, [&](std::size_t line) {
                             std::copy_n(&data_[line], kLine, &data_[half + line]);
                           });
                         }),
                    best(half, 2, [&](const Walk& walk, std::size_t begin, std::size_t end) {
                      for_each_line(walk, data_.data(), begin, end, [&](std::size_t line) {
                        store_line(&data_[half + line], &data_[line]);
                      });
                    }));
  }

 private:
  // GB/s of the fastest pass of any walk over the first `words` words, each of which counts `times`
  // times.
  template <class Pass>
  double best(std::size_t words, double times, Pass&& pass) {
    double most = 0;
    for (const Walk& walk : kWalks) {
      const std::size_t block = walk.block / sizeof(Word);
      const std::size_t blocks = words / block;
      const double bytes = times * static_cast<double>(blocks * walk.block);
      for (int i = 0; i < 3; ++i) {
        const double us = elapsed_us([&] {
          pool_.parallel_for(blocks,
                             [&](std::size_t b, int) { pass(walk, b * block, (b + 1) * block); });
        });
        most = std::max(most, bytes / us * 1e-3);
      }
    }
    return most;
  }

  ThreadPool& pool_;
  AlignedBuffer<Word> data_;
  std::atomic<Word> seen_{0};
};

}  // namespace

std::size_t last_level_cache_bytes() {
  long best = 0;
  for (int name : {_SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL4_CACHE_SIZE}) {
    best = std::max(best, sysconf(name));
  }
  return best > 0 ? static_cast<std::size_t>(best) : std::size_t{32} << 20;
}

Ceilings measure_ceilings(ThreadPool& pool, std::size_t bytes) {
  constexpr std::size_t kUnit = std::size_t{8} << 20;  // two of the largest blocks
  const std::size_t least = static_cast<std::size_t>(pool.threads()) * kUnit;
  Memory memory(pool, std::max((bytes + kUnit - 1) / kUnit * kUnit, least));
  Ceilings ceilings;
  ceilings.read_gb_per_s = memory.read();
  ceilings.update_gb_per_s = memory.update();
  ceilings.copy_gb_per_s = memory.copy();
  return ceilings;
}

Ceilings higher(const Ceilings& a, const Ceilings& b) {
  Ceilings most;
  most.copy_gb_per_s = std::max(a.copy_gb_per_s, b.copy_gb_per_s);
  most.update_gb_per_s = std::max(a.update_gb_per_s, b.update_gb_per_s);
  most.read_gb_per_s = std::max(a.read_gb_per_s, b.read_gb_per_s);
  return most;
}

}  // namespace replayssm::bench
