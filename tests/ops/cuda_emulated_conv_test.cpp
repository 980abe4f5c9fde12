// conv_window and conv_chunk: whole blocks of the kernel's device code on the CPU. What does not
// depend on the grid is tested as a backend of its own, see cuda_emulated_backend.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/bfloat16.h"
#include "cuda_emulated_runner.h"
#include "ops/cuda/conv.cuh"
#include "rounds.h"

namespace replayssm::cuda::test {
namespace {

constexpr int kChannels = 12, kWindow = 8, kConvRows = 2 * kWindow + 4, kBlock = 16;

// One layer's convolution memory, tail slot i for row i, and the inputs of one step.
struct ConvImage {
  std::vector<bf16> ring, tail, input;
  std::vector<float> weight, out;
  std::vector<int> committed, checkpoint, base, home;
  std::vector<ConvTask> tasks;

  bool operator==(const ConvImage& other) const {
    const auto same = [](const auto& a, const auto& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
    };
    return same(ring, other.ring) && same(tail, other.tail) && same(out, other.out);
  }
};

// Row i has tokens[i] tokens, is a null row every seventh time, and stands anywhere after its
// checkpoint, so that some rows fold.
ConvImage make_image(const std::vector<int>& tokens, Phase phase) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  ConvImage image;
  std::vector<RowTokens> rows;
  int total = 0;
  for (int i = 0; i < static_cast<int>(tokens.size()); ++i) {
    const int count = tokens[static_cast<std::size_t>(i)];
    rows.push_back({RowIndex{i}, total, count, phase});
    total += count;
    image.checkpoint.push_back(i % 3 * kBlock);
    image.committed.push_back(image.checkpoint.back() + (i * 5) % (kBlock + kWindow));
    image.base.push_back(i % 7 == 3 ? -1 : i);
    image.home.push_back(image.base.back());
  }
  const auto fill = [&](auto& to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to.push_back(to_bf16(normal(random)));
  };
  fill(image.ring, tokens.size() * kConvRows * kChannels);
  fill(image.tail, tokens.size() * 3 * kChannels);
  fill(image.input, static_cast<std::size_t>(total) * kChannels);
  for (int i = 0; i < kChannels * 4; ++i) image.weight.push_back(normal(random));
  image.out.assign(image.input.size(), -1.0f);
  image.tasks = conv_tasks(rows);
  return image;
}

ConvLaunch launch_of(ConvImage& image, Phase phase, bool one_token) {
  ConvLaunch launch;
  launch.tasks = image.tasks.data();
  launch.task_count = static_cast<int>(image.tasks.size());
  launch.committed = image.committed.data();
  launch.checkpoint = image.checkpoint.data();
  launch.base = image.base.data();
  launch.home = image.home.data();
  launch.ring = image.ring.data();
  launch.tail = image.tail.data();
  launch.tail_stride = 3 * kChannels;
  launch.weight = image.weight.data();
  launch.input = image.input.data();
  launch.input_stride = kChannels;
  launch.out = image.out.data();
  launch.out_f32 = 1;
  launch.channels = kChannels;
  launch.conv_rows = kConvRows;
  launch.fold_block = kBlock;
  launch.chunk = phase == Phase::prefill ? 1 : 0;
  launch.one_token = one_token ? 1 : 0;
  return launch;
}

// The blocks of one slab.
void run_blocks(const ConvLaunch& launch, int slab, int shares) {
  StepPlan plan;
  plan.blocks = shares;
  plan.threads = kConvThreads;
  plan.shared_bytes = sizeof(PlacedConvTask[kConvThreads]);
  emulate(plan, [&](unsigned char* shared) {
    auto& tasks = *reinterpret_cast<PlacedConvTask(*)[kConvThreads]>(shared);
    with_conv_shape(launch, [&]<class Shape>(Shape) {
      conv_block<true, Shape>(launch, {slab, 1, ptx::block(), ptx::blocks()}, tasks, [] {});
    });
  });
}

void expect_the_same_for_any_grid(const std::vector<int>& tokens, Phase phase, bool one_token) {
  const ConvImage before = make_image(tokens, phase);
  // Each task by itself: no run of several, one lookup a block. Under ThreadSanitizer fewer fibers.
  ConvImage expected = before;
  const int tasks = static_cast<int>(expected.tasks.size());
  run_blocks(launch_of(expected, phase, one_token), 0, tests::kThreadSanitizer ? 5 : tasks);
  EXPECT_FALSE(expected == before);
  for (const int shares : {1, 2, 3, 7}) {
    if (tests::kThreadSanitizer && shares > 2) break;
    ConvImage image = before;
    run_blocks(launch_of(image, phase, one_token), 0, shares);
    EXPECT_TRUE(image == expected) << shares << " blocks";
  }
}

TEST(EmulatedConvBlock, LooksUpMoreTasksThanItHasThreads) {
  expect_the_same_for_any_grid(std::vector<int>(2 * kConvThreads + 5, 1), Phase::verify, true);
  std::vector<int> windows;
  for (int i = 0; i < 2 * kConvThreads + 5; ++i) windows.push_back(1 + i % kWindow);
  expect_the_same_for_any_grid(windows, Phase::verify, false);
}

// Runs of a row's tasks end with a block's share, with the row, and with what a block looks up at
// once.
TEST(EmulatedConvBlock, ConvolvesNeighbouringTasksOfARowAsOne) {
  const int t = kConvTaskTokens;
  expect_the_same_for_any_grid({1, t, t + 1, 3 * t - 1, 2, 5 * t, 3, 2 * t + 3}, Phase::prefill,
                               false);
  expect_the_same_for_any_grid({3, (kConvThreads + 9) * t + 5, t}, Phase::prefill, false);
}

TEST(EmulatedConvBlock, MakesTheGatesOfItsTokens) {
  constexpr int kTokens = 67, kHeads = 6, kStride = 2 * kHeads + 3;
  std::mt19937 random(12);
  std::normal_distribution<float> normal;
  std::vector<bf16> projections;
  for (int i = 0; i < kTokens * kStride; ++i) projections.push_back(to_bf16(8 * normal(random)));
  std::vector<float> a_log, dt_bias;
  for (int i = 0; i < kHeads; ++i)
    a_log.push_back(normal(random)), dt_bias.push_back(normal(random));
  for (const int shares : {1, 2, 5}) {
    std::vector<float> gate(kTokens * kHeads + 1, 7.0f), beta(gate);
    ConvLaunch launch;
    launch.gates = {projections.data(),
                    projections.data() + kHeads,
                    kStride,
                    a_log.data(),
                    dt_bias.data(),
                    gate.data(),
                    beta.data(),
                    kTokens,
                    kHeads};
    run_blocks(launch, 1, shares);
    for (int i = 0; i < kTokens * kHeads; ++i) {
      const int head = i % kHeads, at = i / kHeads * kStride + head;
      const double x = static_cast<double>(to_float(projections[static_cast<std::size_t>(at)])) +
                       dt_bias[static_cast<std::size_t>(head)];
      const double b = to_float(projections[static_cast<std::size_t>(at + kHeads)]);
      const double rate = std::exp(static_cast<double>(a_log[static_cast<std::size_t>(head)]));
      const double log_gate = -rate * (x > 20 ? x : std::log1p(std::exp(x)));
      const auto here = static_cast<std::size_t>(i);
      // As in gates_test.cpp.
      ASSERT_NEAR(gate[here], log_gate, (6e-7 + 1.2e-7 * std::abs(x)) * std::abs(log_gate) + 1e-37);
      const double expected_beta = 1 / (1 + std::exp(-b));
      ASSERT_NEAR(beta[here], expected_beta, 1e-6 * expected_beta) << b;
    }
    EXPECT_EQ(gate.back(), 7.0f);
    EXPECT_EQ(beta.back(), 7.0f);
  }
}

}  // namespace
}  // namespace replayssm::cuda::test
