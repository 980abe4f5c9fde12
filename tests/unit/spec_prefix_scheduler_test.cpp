// Which drafts are worth verifying.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "core/random_stream.h"
#include "spec/prefix_scheduler.h"

namespace replayssm {
namespace {

std::vector<DraftRequest> requests_of(const std::vector<std::vector<double>>& confidences) {
  std::vector<DraftRequest> requests;
  for (const auto& each : confidences) {
    DraftRequest& request = requests.emplace_back();
    for (const double confidence : each) request.drafts.push_back({0, {}, confidence});
  }
  return requests;
}

std::vector<int> lengths(const std::vector<std::vector<double>>& confidences,
                         std::vector<StepRates::Point> points) {
  return prefix_lengths(requests_of(confidences), StepRates::make(std::move(points)).value());
}

using Lengths = std::vector<int>;

TEST(StepRates, TimesAreLinearBetweenPointsAndNeverFallWithTokens) {
  const StepRates rates = StepRates::make({{1, 10}, {5, 5}, {9, 6}}).value();
  EXPECT_DOUBLE_EQ(rates.at(1), 10);
  EXPECT_DOUBLE_EQ(rates.at(3), 1 / 0.15);
  EXPECT_DOUBLE_EQ(rates.at(5), 5);
  EXPECT_DOUBLE_EQ(rates.at(9), 5);
  EXPECT_DOUBLE_EQ(rates.at(18), 2.5);
}

TEST(StepRates, AreReadFromAFileOrRefused) {
  const auto read = [](const std::string& text) {
    const auto path = std::filesystem::path(testing::TempDir()) / "step_rates.json";
    std::ofstream(path) << text;
    return StepRates::read(path);
  };
  const auto rates = read(R"({"10": 2, "9": 4.5})");
  ASSERT_TRUE(rates.ok()) << rates.error().message;
  EXPECT_DOUBLE_EQ(rates->at(9), 4.5);
  EXPECT_DOUBLE_EQ(rates->at(10), 2);
  EXPECT_EQ(read("{}").error().message, "step rates: none; expected at least one");
  EXPECT_EQ(read(R"({"0": 3})").error().message,
            "step rates: tokens: 0 is not accepted; expected ascending, 1 or more");
  EXPECT_EQ(read(R"({"2": -1})").error().message,
            "step rates: steps a second with 2 tokens: -1 is not accepted; expected a number above "
            "0");
  EXPECT_NE(read(R"({"many": 3})").error().message.find("step_rates.json: many: 3 is not accepted"),
            std::string::npos);
}

TEST(PrefixScheduler, AFlatTableVerifiesAllThatHelps) {
  EXPECT_EQ(lengths({{0.9, 0.1, 0.5}, {0.01}, {}}, {{1, 7}, {100, 7}}), (Lengths{3, 1, 0}));
}

TEST(PrefixScheduler, ATableWhereTokensCostAsMuchAsStepsVerifiesNone) {
  EXPECT_EQ(lengths({{0.9, 0.9}, {0.99}}, {{1, 100}}), (Lengths{0, 0}));
}

// Time 1 + 0.25 tokens. With two requests: best = 2 / 1.5 = 1.33; then by a = 0.9, 0.8, 0.72, 0.2:
// 2.9 / 1.75 = 1.657, 3.7 / 2 = 1.85, 4.42 / 2.25 = 1.964, 4.62 / 2.5 = 1.848.
TEST(PrefixScheduler, TakesTheLikeliestUntilTheRateFalls) {
  EXPECT_EQ(lengths({{0.8, 0.25}, {0.9, 0.8}}, {{1, 0.8}, {5, 1 / 2.25}, {9, 1 / 3.25}}),
            (Lengths{1, 2}));
}

// A draft's fate may depend on nothing that comes after it.
TEST(PrefixScheduler, WhatComesAfterADraftDecidesNothingAboutIt) {
  for (std::uint64_t round = 0; round < 300; ++round) {
    std::vector<std::vector<double>> confidences(3);
    for (std::size_t r = 0; r < 3; ++r) {
      for (std::size_t j = 0; j < 7; ++j) {
        confidences[r].push_back(uniform_at(round, 10 * r + j));
      }
    }
    const std::vector<StepRates::Point> points{{1, 10}, {24, 1 + 9 * uniform_at(round, 99)}};
    const Lengths before = lengths(confidences, points);
    for (std::size_t r = 0; r < 3; ++r) {
      auto changed = confidences;
      for (auto j = static_cast<std::size_t>(before[r]) + 1; j < 7; ++j) {
        changed[r][j] = uniform_at(round + 1000, 10 * r + j);
      }
      EXPECT_EQ(lengths(changed, points), before);
    }
  }
}

TEST(ConfidenceThreshold, CutsAtTheFirstDraftBelowIt) {
  auto requests = requests_of({{0.9, 0.4, 0.9}, {0.5}, {0.1, 0.9}});
  cut_at_threshold(requests, 0.5);
  EXPECT_EQ(requests[0].drafts.size(), 1u);
  EXPECT_EQ(requests[1].drafts.size(), 1u);
  EXPECT_EQ(requests[2].drafts.size(), 0u);
}

}  // namespace
}  // namespace replayssm
