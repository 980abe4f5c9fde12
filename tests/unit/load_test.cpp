// The parts of `replayssm bench serve` that need no server.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "load/event_splitter.h"
#include "load/http_url.h"
#include "load/load_prompts.h"
#include "load/load_report.h"

namespace replayssm::load {
namespace {

TEST(LoadEventSplitter, AnySplitOfTheBytesGivesTheSameEvents) {
  const std::string bytes =
      ": ping\n\ndata: {\"a\":1}\r\n\r\nevent: x\ndata:second\ndata: line\n\ndata: [DONE]\n\n";
  const std::vector<std::string> expected{"{\"a\":1}", "second\nline", "[DONE]"};
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    EventSplitter splitter;
    std::vector<std::string> events;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      for (auto& event : splitter.push(std::string_view(bytes).substr(at, piece))) {
        events.push_back(std::move(event));
      }
    }
    EXPECT_EQ(events, expected) << piece;
  }
}

TEST(LoadEventSplitter, AnEventWithoutItsEmptyLineIsNotComplete) {
  EventSplitter splitter;
  EXPECT_TRUE(splitter.push("data: x\n").empty());
  EXPECT_EQ(splitter.push("\n").size(), 1u);
}

TEST(LoadUrl, PartsAndDefaults) {
  const auto plain = parse_url("http://example");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->host, "example");
  EXPECT_EQ(plain->port, "80");
  EXPECT_EQ(plain->path, "");
  EXPECT_EQ(plain->authority(), "example");
  const auto whole = parse_url("http://[::1]:8000/base/");
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->host, "::1");
  EXPECT_EQ(whole->port, "8000");
  EXPECT_EQ(whole->path, "/base");
  EXPECT_EQ(whole->authority(), "[::1]:8000");
}

TEST(LoadUrl, WhatIsNotAccepted) {
  for (const char* text :
       {"", "example:8000", "https://example", "http://", "http://:80", "http://example:0",
        "http://example:70000", "http://example:8x", "http://example:", "http://[::1",
        "http://[::1]x", "http://user@example", "http://example/?a=1", "http://exa mple"}) {
    const auto url = parse_url(text);
    ASSERT_FALSE(url) << text;
    EXPECT_EQ(url.error().message.rfind("--url: ", 0), 0u) << url.error().message;
  }
}

TEST(LoadPrompts, RandomOnesDifferBehindTheirPrefixAndRepeatWithTheirSeed) {
  const auto prompts = random_prompts({20, 8, 5, 7});
  ASSERT_EQ(prompts.size(), 20u);
  EXPECT_EQ(std::set<std::string>(prompts.begin(), prompts.end()).size(), 20u);
  const std::string prefix = prompts[0].substr(0, prompts[0].find('\n') + 1);
  EXPECT_EQ(std::count(prefix.begin(), prefix.end(), ' '), 4);
  for (const std::string& prompt : prompts) {
    EXPECT_EQ(prompt.rfind(prefix, 0), 0u);
    EXPECT_EQ(
        std::count(prompt.begin() + static_cast<std::ptrdiff_t>(prefix.size()), prompt.end(), ' '),
        7);
  }
  EXPECT_EQ(random_prompts({20, 8, 5, 7}), prompts);
  EXPECT_NE(random_prompts({20, 8, 5, 8}), prompts);
}

TEST(LoadReport, PercentilesInterpolateBetweenObservations) {
  // numpy.percentile of 1..5: 3, 4.6, 4.96.
  const Spread spread = spread_of({5, 1, 4, 2, 3});
  EXPECT_DOUBLE_EQ(spread.mean, 3);
  EXPECT_DOUBLE_EQ(spread.p50, 3);
  EXPECT_DOUBLE_EQ(spread.p90, 4.6);
  EXPECT_DOUBLE_EQ(spread.p99, 4.96);
  EXPECT_DOUBLE_EQ(spread.max, 5);
  EXPECT_DOUBLE_EQ(spread_of({7}).p99, 7);
  EXPECT_DOUBLE_EQ(spread_of({}).max, 0);
}

TEST(LoadReport, FailedRequestsCountNowhereButAsFailed) {
  LoadResult result;
  result.seconds = 2;
  result.samples.push_back({"", 0.1, 0.4, 0.5, {0.1, 0.2}, 10, 4, 4});
  result.samples.push_back({"HTTP 429: full", 9, 9, 9, {9}, 99, 99, 99});
  result.samples.push_back({"HTTP 429: full", 0, 0, 9, {}, 0, 0, 0});
  const LoadSummary summary = summary_of(result);
  EXPECT_EQ(summary.completed, 1);
  EXPECT_EQ(summary.failed, 2);
  ASSERT_EQ(summary.errors.size(), 1u);
  EXPECT_EQ(summary.errors[0].second, 2);
  EXPECT_EQ(summary.prompt_tokens, 10);
  EXPECT_EQ(summary.cached_tokens, 4);
  EXPECT_DOUBLE_EQ(summary.first_token.max, 100);
  EXPECT_DOUBLE_EQ(summary.between_texts.mean, 150);
  EXPECT_NEAR(summary.each_token.max, 100, 1e-9);  // 0.3 s over the 3 tokens after the first
  EXPECT_DOUBLE_EQ(summary.whole_request.max, 500);
  const auto json = to_json(LoadOptions{}, summary);
  EXPECT_DOUBLE_EQ(json["requests_per_second"], 0.5);
  EXPECT_DOUBLE_EQ(json["output_tokens_per_second"], 2);
}

}  // namespace
}  // namespace replayssm::load
