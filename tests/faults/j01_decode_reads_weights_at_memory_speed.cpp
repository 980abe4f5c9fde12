// J01. ggml-org/llama.cpp#17936, #18112, #19480, #19365: decode of a hybrid model ran far below the
// bound that reading its weights sets. The product of one row with large bf16 weights reaches at
// least 60 % of the read bandwidth that plain loads reach in the same run.
#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/bfloat16.h"
#include "model/matmul.h"

namespace replayssm {
namespace {

constexpr int kSize = 4096;
constexpr std::size_t kBytes = std::size_t{kSize} * kSize * sizeof(bf16);

template <class F>
double seconds(F&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Enough matrices that each has left the cache when its turn comes again, within reason.
std::size_t matrices() {
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const auto bytes = static_cast<std::size_t>(std::max(cache, 32L << 20)) * 2;
  return std::clamp(bytes / kBytes + 1, std::size_t{3}, std::size_t{16});
}

constexpr std::size_t kWords = kBytes / sizeof(std::uint64_t);

// Adds up words in eight streams side by side, which is faster than one.
std::uint64_t read_streams(const std::uint64_t* words, std::size_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<std::uint64_t> d;
  constexpr std::size_t kStreams = 8;
  constexpr std::size_t kLine = 8;  // words
  const std::size_t length = count / kStreams;
  hn::Vec<decltype(d)> sum[kStreams];
  for (auto& v : sum) v = hn::Zero(d);
  for (std::size_t at = 0; at < length; at += kLine) {
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      const std::uint64_t* line = words + stream * length + at;
      for (std::size_t i = 0; i < kLine; i += hn::Lanes(d)) {
        sum[stream] = hn::Add(sum[stream], hn::LoadU(d, line + i));
      }
    }
  }
  std::uint64_t total = 0;
  for (const auto& v : sum) total += hn::GetLane(v);
  return total;
}

TEST(J01, ASingleRowReachesSixtyPercentOfTheReadBandwidth) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "speed of instrumented code says nothing";
#endif
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "speed of instrumented code says nothing";
#endif
  ThreadPool pool;
  std::vector<AlignedBuffer<std::uint64_t>> weights;
  for (std::size_t i = 0; i < matrices(); ++i) {
    weights.emplace_back(kBytes / sizeof(std::uint64_t));
    weights.back().fill_bytes(0x3c);
  }
  Matmul matmul(pool, MatmulPolicy{}, 1, kSize);
  const std::vector<float> x(kSize, 1.0f);
  std::vector<float> out(kSize);
  constexpr std::size_t kParts = 64;
  std::vector<std::uint64_t> sums(kParts);

  // The machine may be busy with other things: the best of many rounds counts, for either.
  double plain = 1e9;
  double multiplied = 1e9;
  for (std::size_t round = 0; round < 30; ++round) {
    const std::uint64_t* read = weights[(2 * round) % weights.size()].data();
    const auto part = [&](std::size_t index, int) {
      sums[index] += read_streams(read + index * (kWords / kParts), kWords / kParts);
    };
    plain = std::min(plain, seconds([&] { pool.parallel_for(kParts, std::cref(part)); }));
    const WeightMatrix weight{kSize, kSize, DType::bf16,
                              weights[(2 * round + 1) % weights.size()].data()};
    const Product product{&weight, out.data(), kSize, kSize};
    multiplied = std::min(multiplied, seconds([&] {
                            matmul.run(x.data(), kSize, 1, {&product, 1});
                          }));
  }
  RecordProperty("percent_of_read_bandwidth", static_cast<int>(100 * plain / multiplied));
  RecordProperty("read_gb_per_s", static_cast<int>(static_cast<double>(kBytes) / plain / 1e9));
  EXPECT_GE(plain / multiplied, 0.6);
  EXPECT_GT(std::accumulate(sums.begin(), sums.end(), std::uint64_t{0}), 0u);
  EXPECT_EQ(out.front(), out.back());
}

}  // namespace
}  // namespace replayssm
