// The tokens that a GPU chooses, of rows of a real vocabulary's size, against the CPU's sampler.
// Skipped where there is no GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/random_stream.h"
#include "engine/sampler.h"
#include "model/cuda/decoder_kernels.h"
#include "model/cuda/token_choices.h"
#include "stream_gate.h"

namespace replayssm::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rows of logits on the device, and what is chosen of them.
class ChosenRows {
 public:
  ChosenRows(int rows, int vocabulary)
      : rows_(rows),
        vocabulary_(vocabulary),
        stride_(vocabulary + 24),
        stream_(Stream::make().value()),
        choices_(TokenChoices::make(rows, rows, vocabulary, stream_).value()),
        logits_(DeviceBuffer::make(bytes()).value()),
        best_(DeviceBuffer::make(static_cast<std::size_t>(rows) * sizeof(int)).value()),
        parts_(DeviceBuffer::make(static_cast<std::size_t>(rows) * kBestParts * sizeof(BestToken))
                   .value()) {}

  // Rows of logits on the device, for launch().
  DeviceBuffer place(const std::vector<std::vector<float>>& logits) const {
    std::vector<float> all(static_cast<std::size_t>(rows_) * static_cast<std::size_t>(stride_),
                           kInfinity);  // behind a row nobody looks
    for (std::size_t r = 0; r < logits.size(); ++r) {
      std::copy(logits[r].begin(), logits[r].end(),
                all.begin() + static_cast<std::ptrdiff_t>(r) * stride_);
    }
    return DeviceBuffer::copy_of(all.data(), bytes()).value();
  }
  // Waits for nothing. The logits are read before the stream goes on.
  void launch(const DeviceBuffer& logits, const std::vector<TokenChoice>& choices) {
    ASSERT_EQ(cudaMemcpyAsync(logits_.as<void>(), logits.as<void>(), bytes(),
                              cudaMemcpyDeviceToDevice, stream_),
              cudaSuccess);
    ASSERT_TRUE(launch_best_token(
                    {logits_.as<float>(), stride_, vocabulary_, static_cast<int>(choices.size()),
                     parts_.as<BestToken>(), best_.as<int>()},
                    stream_)
                    .ok());
    TokenChoiceArgs args;
    args.logits = logits_.as<float>();
    args.stride = stride_;
    args.best_parts = parts_.as<BestToken>();
    args.chosen = best_.as<int>();
    const Status launched = choices_.launch(choices, args);
    ASSERT_TRUE(launched.ok()) << launched.error().message;
  }
  void launch(const std::vector<std::vector<float>>& logits,
              const std::vector<TokenChoice>& choices) {
    uploaded_ = place(logits);
    launch(uploaded_, choices);
  }
  cudaStream_t stream() const { return stream_; }
  int launched() const { return choices_.launched(); }
  std::vector<ChosenToken> take() {
    const auto taken = choices_.take();
    EXPECT_TRUE(taken.ok()) << taken.error().message;
    return taken ? std::vector<ChosenToken>(taken->begin(), taken->end())
                 : std::vector<ChosenToken>();
  }

 private:
  std::size_t bytes() const {
    return static_cast<std::size_t>(rows_) * static_cast<std::size_t>(stride_) * sizeof(float);
  }

  int rows_, vocabulary_, stride_;
  Stream stream_;
  TokenChoices choices_;
  DeviceBuffer logits_, best_, parts_;
  DeviceBuffer uploaded_;  // of the newest launch() of rows on the host
};

class CudaTokenChoices : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "this machine has no GPU";
    }
  }
};

// Peaked, flat, tied, all equal, far apart.
std::vector<float> random_row(std::mt19937& random, int kind, int size) {
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> row;
  for (int i = 0; i < size; ++i) {
    const float x = normal(random);
    row.push_back(kind == 0   ? 3 * x
                  : kind == 1 ? 0.3f * x - 4
                  : kind == 2 ? std::round(2 * x)
                  : kind == 3 ? 1.5f
                              : 1e30f * x);
  }
  return row;
}

TEST_P(CudaTokenChoices, AreThoseOfTheCpu) {
  const int vocabulary = GetParam();
  constexpr int kRows = 6;
  ChosenRows device(kRows, vocabulary);
  Sampler sampler;
  std::mt19937 random(7);
  const double temperatures[] = {0.0, 0.05, 0.7, 1.0, 2.0};
  const int top_ks[] = {0, 0, 1, 40, 3000};
  const double top_ps[] = {1.0, 0.95, 0.3, 1e-6};
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(vocabulary + 31) / 32, 0);
  for (auto& word : mask) word = static_cast<std::uint32_t>(random() & random());
  mask.back() |= 1;
  std::vector<SeenToken> seen;
  for (int i = 0; i < std::min(vocabulary, 5000); i += 3) seen.push_back({i, i % 4});
  const std::vector<std::pair<TokenId, float>> bias{{3, 4.0f}, {4, -4.0f}, {vocabulary + 1, 1.0f}};
  for (int turn = 0; turn < 30; ++turn) {
    std::vector<std::vector<float>> logits;
    std::vector<TokenChoice> choices(kRows);
    for (int r = 0; r < kRows; ++r) {
      logits.push_back(random_row(random, (turn + r) % 5, vocabulary));
      TokenChoice& choice = choices[static_cast<std::size_t>(r)];
      choice.temperature = temperatures[random() % 5];
      choice.top_k = top_ks[random() % 5];
      choice.top_p = top_ps[random() % 4];
      choice.min_p = random() % 4 == 0 ? 0.1 : 0.0;
      choice.uniform = uniform_at(11, random());
      if (random() % 4 == 0) choice.mask = mask;
      if (random() % 4 == 0) choice.bias = bias;
      if (random() % 4 == 0) {
        choice.seen = seen;
        choice.repetition_penalty = 1.1;
        choice.presence_penalty = 0.2;
      }
      if (random() % 3 == 0) choice.top_logprobs = static_cast<int>(random() % 21);
    }
    if (turn % 5 == 4) {
      const float wrong[] = {std::nanf(""), kInfinity, -kInfinity};
      logits[2][random() % static_cast<unsigned>(vocabulary)] = wrong[turn / 5 % 3];
    }
    device.launch(logits, choices);
    const std::vector<ChosenToken> chosen = device.take();
    ASSERT_EQ(chosen.size(), choices.size());
    for (std::size_t r = 0; r < kRows; ++r) {
      const ChosenToken expected = sampler.choose(logits[r], choices[r]);
      ASSERT_EQ(chosen[r].error.has_value(), expected.error.has_value()) << turn << " " << r;
      EXPECT_EQ(chosen[r].finite, expected.finite);
      EXPECT_EQ(chosen[r].token, expected.token) << turn << " " << r;
      ASSERT_EQ(chosen[r].logprobs.has_value(), expected.logprobs.has_value());
      if (!expected.logprobs) continue;
      const double near = 1e-8 * std::max(1.0, std::abs(expected.logprobs->logprob));
      EXPECT_NEAR(chosen[r].logprobs->logprob, expected.logprobs->logprob, near);
      ASSERT_EQ(chosen[r].logprobs->top.size(), expected.logprobs->top.size());
      for (std::size_t i = 0; i < expected.logprobs->top.size(); ++i) {
        EXPECT_EQ(chosen[r].logprobs->top[i].token, expected.logprobs->top[i].token);
        EXPECT_NEAR(chosen[r].logprobs->top[i].logprob, expected.logprobs->top[i].logprob, 1e-6);
      }
    }
  }
}

// Two steps are launched while the device is held up before the first: the host waits for neither.
TEST_P(CudaTokenChoices, TwoStepsAreUnderWayAtATime) {
  const int vocabulary = GetParam();
  ChosenRows device(4, vocabulary);
  Sampler sampler;
  std::mt19937 random(8);
  std::vector<DeviceBuffer> placed;
  std::vector<std::vector<TokenChoice>> choices;
  std::vector<std::vector<ChosenToken>> expected;
  std::vector<SeenToken> seen;
  for (int i = 0; i < std::min(vocabulary, 200); i += 3) seen.push_back({i, i % 4});
  for (int step = 0; step < 8; ++step) {
    std::vector<std::vector<float>> logits;
    choices.emplace_back();
    expected.emplace_back();
    for (int r = 0; r <= step % 4; ++r) {
      logits.push_back(random_row(random, r % 3, vocabulary));
      TokenChoice& choice = choices.back().emplace_back();
      choice.top_p = 0.9;
      choice.uniform = uniform_at(12, random());
      if (r == 1) choice.top_logprobs = 3;
      if (r == 2) choice.seen = seen, choice.frequency_penalty = 0.5;
      expected.back().push_back(sampler.choose(logits.back(), choice));
    }
    placed.push_back(device.place(logits));
  }
  const auto expect_taken = [&](std::size_t step) {
    const auto chosen = device.take();
    ASSERT_EQ(chosen.size(), expected[step].size());
    for (std::size_t r = 0; r < chosen.size(); ++r) {
      EXPECT_EQ(chosen[r].token, expected[step][r].token) << step << " " << r;
    }
  };
  // As an engine goes on: always one more than is taken. The first launch of a kernel may wait.
  device.launch(placed[0], choices[0]);
  for (std::size_t step = 1; step < 8; ++step) {
    device.launch(placed[step], choices[step]);
    expect_taken(step - 1);
  }
  expect_taken(7);
  for (std::size_t step = 0; step < 8; step += 2) {
    StreamGate gate(device.stream());
    device.launch(placed[step], choices[step]);
    device.launch(placed[step + 1], choices[step + 1]);
    EXPECT_EQ(device.launched(), 2);
    gate.open();
    expect_taken(step);
    expect_taken(step + 1);
  }
}

// Whoever else is in the step: each row gets what it gets alone, to the last bit.
TEST_P(CudaTokenChoices, ARowAloneGetsWhatItGetsAmongOthers) {
  const int vocabulary = GetParam();
  constexpr int kRows = 7;
  ChosenRows device(kRows, vocabulary);
  std::mt19937 random(9);
  std::vector<std::vector<float>> logits;
  std::vector<TokenChoice> choices(kRows);
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(vocabulary + 31) / 32, 0x55555555u);
  std::vector<SeenToken> seen;
  for (int i = 0; i < std::min(vocabulary, 5000); i += 2) seen.push_back({i, i % 3});
  for (int turn = 0; turn < 6; ++turn) {
    logits.clear();
    for (int r = 0; r < kRows; ++r) {
      logits.push_back(random_row(random, (r + turn) % 5, vocabulary));
      TokenChoice& choice = choices[static_cast<std::size_t>(r)] = {};
      choice.temperature = r == 0 ? 0.0 : 0.9;
      choice.top_k = r == 1 ? 20 : 0;
      choice.top_p = r == 2 ? 0.8 : 1.0;
      choice.uniform = uniform_at(13, random());
      if (r == 3) choice.mask = mask;
      if (r == 4) choice.seen = seen, choice.repetition_penalty = 1.3;
      if (r >= 4) choice.top_logprobs = r;
      if (r == 5) choice.logprobs_of = vocabulary / 2;
    }
    device.launch(logits, choices);
    const auto together = device.take();
    ASSERT_EQ(together.size(), logits.size());
    for (std::size_t r = 0; r < kRows; ++r) {
      device.launch({logits[r]}, {choices[r]});
      const auto alone = device.take();
      ASSERT_EQ(alone.size(), 1u);
      EXPECT_EQ(alone[0].token, together[r].token) << turn << " " << r;
      ASSERT_EQ(alone[0].logprobs.has_value(), together[r].logprobs.has_value());
      if (!alone[0].logprobs) continue;
      EXPECT_EQ(alone[0].logprobs->logprob, together[r].logprobs->logprob) << turn << " " << r;
      ASSERT_EQ(alone[0].logprobs->top.size(), together[r].logprobs->top.size());
      for (std::size_t i = 0; i < alone[0].logprobs->top.size(); ++i) {
        EXPECT_EQ(alone[0].logprobs->top[i].token, together[r].logprobs->top[i].token);
        EXPECT_EQ(alone[0].logprobs->top[i].logprob, together[r].logprobs->top[i].logprob);
      }
    }
  }
}

// Log-probabilities of a token that is asked about, as a prompt's are; the choice is another
// matter.
TEST_P(CudaTokenChoices, LogProbabilitiesAreThoseOfTheTokenThatIsAskedAbout) {
  const int vocabulary = GetParam();
  ChosenRows device(4, vocabulary);
  Sampler sampler;
  std::mt19937 random(10);
  for (int turn = 0; turn < 5; ++turn) {
    std::vector<std::vector<float>> logits;
    std::vector<TokenChoice> choices(4);
    for (std::size_t r = 0; r < 4; ++r) {
      logits.push_back(random_row(random, static_cast<int>(r) % 3, vocabulary));
      choices[r].temperature = 0;
      choices[r].top_logprobs = static_cast<int>(r);
      if (r != 2) choices[r].logprobs_of = static_cast<TokenId>(random() % vocabulary);
    }
    device.launch(logits, choices);
    const auto chosen = device.take();
    ASSERT_EQ(chosen.size(), 4u);
    for (std::size_t r = 0; r < 4; ++r) {
      const ChosenToken expected = sampler.choose(logits[r], choices[r]);
      EXPECT_EQ(chosen[r].token, expected.token);
      ASSERT_TRUE(chosen[r].logprobs && expected.logprobs);
      EXPECT_NEAR(chosen[r].logprobs->logprob, expected.logprobs->logprob, 1e-6);
      ASSERT_EQ(chosen[r].logprobs->top.size(), expected.logprobs->top.size());
    }
  }
}

// More than the table on the device holds at a time.
TEST_P(CudaTokenChoices, PenaltiesOfAllTokensOfAllRowsGoInParts) {
  const int vocabulary = GetParam();
  constexpr int kRows = 5;
  ChosenRows device(kRows, vocabulary);
  Sampler sampler;
  std::mt19937 random(11);
  std::vector<SeenToken> seen;
  for (int i = 0; i < vocabulary; ++i) seen.push_back({i, i % 5});
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(vocabulary + 31) / 32, 0x77777777u);
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<std::vector<float>> logits;
    std::vector<TokenChoice> choices(kRows);
    for (std::size_t r = 0; r < kRows; ++r) {
      logits.push_back(random_row(random, static_cast<int>(r) % 3, vocabulary));
      choices[r].temperature = r % 2 == 0 ? 0.0 : 1.0;
      choices[r].top_p = 0.9;
      choices[r].uniform = uniform_at(14, random());
      if (r != 3) choices[r].seen = seen;
      choices[r].repetition_penalty = 1.2;
      choices[r].frequency_penalty = 0.3;
      if (r >= 2) choices[r].mask = mask;
      if (r == 4) choices[r].top_logprobs = 2;
    }
    device.launch(logits, choices);
    const auto chosen = device.take();
    ASSERT_EQ(chosen.size(), choices.size());
    for (std::size_t r = 0; r < kRows; ++r) {
      const ChosenToken expected = sampler.choose(logits[r], choices[r]);
      EXPECT_EQ(chosen[r].token, expected.token) << turn << " " << r;
      ASSERT_EQ(chosen[r].logprobs.has_value(), expected.logprobs.has_value());
      if (expected.logprobs) {
        EXPECT_NEAR(chosen[r].logprobs->logprob, expected.logprobs->logprob, 1e-6);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, CudaTokenChoices, testing::Values(7, 2048, 50000, 248320));

}  // namespace
}  // namespace replayssm::cuda
