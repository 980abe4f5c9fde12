#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "core/random_stream.h"
#include "engine/sampler.h"

namespace replayssm {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplingParams params(double temperature) {
  SamplingParams p;
  p.temperature = temperature;
  p.seed = 42;
  return p;
}

// How often each token is chosen in `draws` draws, each with a random number of its own.
std::map<TokenId, int> count_draws(const std::vector<float>& logits, SamplingParams p, int draws,
                                   LogitMask mask = {}) {
  Sampler sampler;
  std::map<TokenId, int> counts;
  for (int i = 0; i < draws; ++i) {
    p.seed = static_cast<std::uint64_t>(i);
    ++counts[sampler.sample(logits, SamplingState(p), mask).value()];
  }
  return counts;
}

// Pearson's statistic against the expected probabilities.
double chi_squared(const std::map<TokenId, int>& counts, const std::vector<double>& expected,
                   int draws) {
  double sum = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto found = counts.find(static_cast<TokenId>(i));
    const double observed = found == counts.end() ? 0 : found->second;
    const double mean = expected[i] * draws;
    if (mean == 0) {
      EXPECT_EQ(observed, 0) << "token " << i << " has probability 0";
    } else {
      sum += (observed - mean) * (observed - mean) / mean;
    }
  }
  return sum;
}

std::vector<double> softmax(const std::vector<double>& logits) {
  std::vector<double> p;
  for (const double x : logits) p.push_back(std::exp(x));
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= total;
  return p;
}

const std::vector<float> kLogits{1.0f, 3.0f, 2.0f, -1.0f, 2.5f};
constexpr int kDraws = 20000;
// 99.99 % quantile of chi squared with 4 degrees of freedom; the draws are fixed by their seeds.
constexpr double kLimit = 23.5;

TEST(Sampler, GreedyTakesTheLargestAndTheSmallestIdAmongEquals) {
  Sampler sampler;
  EXPECT_EQ(sampler.sample(kLogits, SamplingState(params(0))).value(), 1);
  const std::vector<float> ties{0.0f, 2.0f, 2.0f, 2.0f};
  EXPECT_EQ(sampler.sample(ties, SamplingState(params(0))).value(), 1);
}

TEST(Sampler, TemperatureOneFollowsTheSoftmax) {
  const auto expected = softmax({1, 3, 2, -1, 2.5});
  EXPECT_LT(chi_squared(count_draws(kLogits, params(1), kDraws), expected, kDraws), kLimit);
}

TEST(Sampler, TemperatureDividesTheLogits) {
  const auto expected = softmax({0.5, 1.5, 1, -0.5, 1.25});
  EXPECT_LT(chi_squared(count_draws(kLogits, params(2), kDraws), expected, kDraws), kLimit);
}

TEST(Sampler, TopKKeepsExactlyTheKMostLikelySmallerIdsFirst) {
  SamplingParams p = params(1);
  p.top_k = 3;
  const auto kept = softmax({3, 2, 2.5});
  EXPECT_LT(chi_squared(count_draws(kLogits, p, kDraws), {0, kept[0], kept[1], 0, kept[2]}, kDraws),
            kLimit);
  p.top_k = 2;
  const auto ties = count_draws({0, 0, 0, 0}, p, 1000);
  EXPECT_EQ(ties.size(), 2u);
  EXPECT_TRUE(ties.contains(0) && ties.contains(1));
  p.top_k = 1;
  EXPECT_EQ(count_draws(kLogits, p, 100).at(1), 100);
  p.top_k = 1000;  // more than there are tokens: off
  EXPECT_LT(chi_squared(count_draws(kLogits, p, kDraws), softmax({1, 3, 2, -1, 2.5}), kDraws),
            kLimit);
}

TEST(Sampler, TopPKeepsTheFewestTokensThatReachIt) {
  SamplingParams p = params(1);
  // Probabilities by rank: token 1 0.467, token 4 0.283, token 2 0.172, token 0 0.063, token 3
  // 0.009.
  const std::array<std::pair<double, std::size_t>, 5> cases{
      {{0.4, 1}, {0.47, 2}, {0.74, 2}, {0.8, 3}, {0.999, 5}}};
  for (const auto& [top_p, tokens] : cases) {
    p.top_p = top_p;
    EXPECT_EQ(count_draws(kLogits, p, 5000).size(), tokens) << top_p;
  }
  p.top_p = 0.7;
  const auto kept = softmax({3, 2.5});
  EXPECT_LT(chi_squared(count_draws(kLogits, p, kDraws), {0, kept[0], 0, 0, kept[1]}, kDraws),
            kLimit);
}

TEST(Sampler, MinPDropsWhatIsTooUnlikelyBesideTheMostLikely) {
  SamplingParams p = params(1);
  p.min_p = 0.3;  // e^(2 - 3) = 0.37 stays, e^(1 - 3) = 0.14 goes
  const auto kept = softmax({3, 2, 2.5});
  EXPECT_LT(chi_squared(count_draws(kLogits, p, kDraws), {0, kept[0], kept[1], 0, kept[2]}, kDraws),
            kLimit);
  p.min_p = 1.0;
  EXPECT_EQ(count_draws(kLogits, p, 100).at(1), 100);
}

TEST(Sampler, PenaltiesChangeTheLogitsOfSeenTokensAsDocumented) {
  SamplingParams p = params(0);
  const std::array<TokenId, 2> prompt{1, 3};
  // Repetition: positive logits are divided, negative multiplied; the prompt counts.
  p.repetition_penalty = 1.3;
  SamplingState state(p);
  state.add_prompt(prompt);
  Sampler sampler;
  EXPECT_EQ(sampler.sample(kLogits, state).value(), 4);  // 3 / 1.3 = 2.31 < 2.5
  EXPECT_EQ(sampler.sample(std::vector<float>{-5, -1, -1.2f}, state).value(), 2);  // -1.3 < -1.2
  // Presence: once, output only.
  p = params(0);
  p.presence_penalty = 0.6;
  SamplingState presence(p);
  presence.add_prompt(prompt);
  EXPECT_EQ(sampler.sample(kLogits, presence).value(), 1);
  presence.add_output(1);
  presence.add_output(1);
  EXPECT_EQ(sampler.sample(kLogits, presence).value(), 4);  // 2.4 < 2.5
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 2, -1, 2.3f}, presence).value(), 1);
  // Frequency: once for each time.
  p = params(0);
  p.frequency_penalty = 0.3;
  SamplingState frequency(p);
  frequency.add_output(1);
  EXPECT_EQ(sampler.sample(kLogits, frequency).value(), 1);  // 2.7
  frequency.add_output(1);
  EXPECT_EQ(sampler.sample(kLogits, frequency).value(), 4);  // 2.4
}

TEST(Sampler, AMaskedTokenIsNeverChosen) {
  const std::array<std::uint32_t, 1> mask{0b01101u};  // 0, 2, 3
  const auto kept = softmax({1, 2, -1});
  EXPECT_LT(chi_squared(count_draws(kLogits, params(1), kDraws, mask),
                        {kept[0], 0, kept[1], kept[2], 0}, kDraws),
            kLimit);
  Sampler sampler;
  EXPECT_EQ(sampler.sample(kLogits, SamplingState(params(0)), mask).value(), 2);
  const std::array<std::uint32_t, 1> nothing{0};
  EXPECT_FALSE(sampler.sample(kLogits, SamplingState(params(0)), nothing).ok());
}

TEST(Sampler, LogitsThatAreNotFiniteAreAnErrorThatNamesTheToken) {
  Sampler sampler;
  for (const float bad : {std::nanf(""), kInfinity, -kInfinity}) {
    for (const double temperature : {0.0, 1.0}) {
      std::vector<float> logits = kLogits;
      logits[3] = bad;
      const auto refused = sampler.sample(logits, SamplingState(params(temperature)));
      ASSERT_FALSE(refused.ok());
      EXPECT_NE(refused.error().message.find("for token 3"), std::string::npos);
    }
  }
}

TEST(Sampler, WhatAPenaltyOrABiasTakesOutOfFloat32IsAnErrorThatNamesTheToken) {
  Sampler sampler;
  const std::vector<TokenId> seen = {3};
  for (const double temperature : {0.0, 1.0}) {
    SamplingParams p = params(temperature);
    p.repetition_penalty = 0.01;
    p.top_p = 0.9;
    SamplingState state(p);
    state.add_prompt(seen);
    std::vector<float> logits = kLogits;
    logits[3] = 1e38F;
    const auto refused = sampler.sample(logits, state);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("for token 3"), std::string::npos);

    const std::pair<TokenId, float> bias[] = {{3, 3e38F}};
    EXPECT_FALSE(sampler.sample(std::vector<float>(5, 3e38F), state, {}, bias).ok());
  }
}

TEST(Sampler, AChoiceDependsOnSeedAndOutputNumberAlone) {
  const auto run = [&](Sampler& sampler, std::uint64_t seed) {
    SamplingParams p = params(1);
    p.seed = seed;
    SamplingState state(p);
    std::vector<TokenId> tokens;
    for (int i = 0; i < 50; ++i) {
      tokens.push_back(sampler.sample(kLogits, state).value());
      state.add_output(tokens.back());
    }
    return tokens;
  };
  Sampler shared;
  const auto first = run(shared, 1);
  run(shared, 2);  // another request in between
  Sampler fresh;
  EXPECT_EQ(run(fresh, 1), first);
  EXPECT_NE(run(fresh, 2), first);
}

TEST(Sampler, AnExtremeTemperatureStaysFinite) {
  SamplingParams p = params(1e-30);
  EXPECT_EQ(count_draws(kLogits, p, 100).at(1), 100);
  p = params(1);
  EXPECT_EQ(count_draws({-3e38f, 3e38f, 0}, p, 100).at(1), 100);
}

TEST(RandomStream, IsUniformAndUncorrelatedBetweenNeighbours) {
  constexpr int kNumbers = 100000;
  std::array<int, 16> bins{};
  double product = 0;
  for (int i = 0; i < kNumbers; ++i) {
    const double x = uniform_at(3, static_cast<std::uint64_t>(i));
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    ++bins[static_cast<std::size_t>(x * 16)];
    product += (x - 0.5) * (uniform_at(4, static_cast<std::uint64_t>(i)) - 0.5);
  }
  double chi = 0;
  for (const int n : bins) chi += (n - kNumbers / 16.0) * (n - kNumbers / 16.0) / (kNumbers / 16.0);
  EXPECT_LT(chi, 44.0);  // 99.99 % quantile, 15 degrees of freedom
  // Standard deviation of the mean product is 1/12 / sqrt(n).
  EXPECT_LT(std::abs(product / kNumbers), 4.0 / 12 / std::sqrt(kNumbers));
}

TEST(SamplingParams, ARequestWinsOverTheFileAndTheFileOverTheEngine) {
  GenerationDefaults file;
  EXPECT_EQ(resolve_sampling({}, file, 5).value().temperature, 1.0);
  EXPECT_EQ(resolve_sampling({}, file, 5).value().seed, 5u);
  file.temperature = 0.6;
  file.top_k = 20;
  SamplingRequest request;
  request.top_k = 0;
  request.seed = 9;
  const auto p = resolve_sampling(request, file, 5).value();
  EXPECT_EQ(p.temperature, 0.6);
  EXPECT_EQ(p.top_k, 0);
  EXPECT_EQ(p.top_p, 1.0);
  EXPECT_EQ(p.seed, 9u);
  file.do_sample = false;
  EXPECT_TRUE(resolve_sampling({}, file, 5).value().greedy());
  request.temperature = 0.5;
  EXPECT_EQ(resolve_sampling(request, file, 5).value().temperature, 0.5);
}

TEST(SamplingParams, ValuesOutOfRangeAreRefusedByName) {
  const auto refused = [](auto SamplingRequest::*field, auto value) {
    SamplingRequest request;
    request.*field = value;
    const auto result = resolve_sampling(request, {}, 0);
    return result.ok() ? std::string("accepted") : result.error().message.substr(0, 8);
  };
  EXPECT_EQ(refused(&SamplingRequest::temperature, -0.1), "temperat");
  EXPECT_EQ(refused(&SamplingRequest::temperature, std::nan("")), "temperat");
  EXPECT_EQ(refused(&SamplingRequest::top_k, -1), "top_k: -");
  EXPECT_EQ(refused(&SamplingRequest::top_p, 0.0), "top_p: 0");
  EXPECT_EQ(refused(&SamplingRequest::top_p, 1.01), "top_p: 1");
  EXPECT_EQ(refused(&SamplingRequest::min_p, 1.5), "min_p: 1");
  EXPECT_EQ(refused(&SamplingRequest::repetition_penalty, 0.0), "repetiti");
  EXPECT_EQ(refused(&SamplingRequest::repetition_penalty, 1e-300), "repetiti");
  EXPECT_EQ(refused(&SamplingRequest::repetition_penalty, 0.01), "accepted");
  EXPECT_EQ(refused(&SamplingRequest::presence_penalty, 2.5), "presence");
  EXPECT_EQ(refused(&SamplingRequest::frequency_penalty, -2.5), "frequenc");
}

}  // namespace
}  // namespace replayssm
