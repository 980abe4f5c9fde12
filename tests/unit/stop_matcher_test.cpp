#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

#include "splits.h"

namespace replayssm {
namespace {

struct Outcome {
  std::string text;
  std::string matched;
  bool operator==(const Outcome&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  return out << '"' << outcome.text << "\" stopped by \"" << outcome.matched << '"';
}

Outcome run(const std::vector<std::string>& pieces, const std::vector<std::string>& stops,
            StopMatcher::MatchedText matched_text = StopMatcher::MatchedText::excluded) {
  StopMatcher matcher = StopMatcher::make(stops, matched_text).value();
  Outcome outcome;
  for (const std::string& piece : pieces) outcome.text += matcher.push(piece);
  outcome.text += matcher.finish();
  outcome.matched = matcher.matched().value_or("");
  return outcome;
}

// The definition, by search: the first byte at which some stop string ends; of those that end
// there, the longest.
Outcome by_search(const std::string& text, const std::vector<std::string>& stops, bool included) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::string longest;
    for (const std::string& stop : stops) {
      const bool ends = std::string_view(text).substr(0, end).ends_with(stop);
      if (ends && stop.size() > longest.size()) longest = stop;
    }
    if (longest.empty()) continue;
    return {text.substr(0, end - (included ? 0 : longest.size())), longest};
  }
  return {text, ""};
}

TEST(StopMatcher, TextWithoutAStopStringPassesThrough) {
  EXPECT_EQ(run({"hello ", "world"}, {"END"}), (Outcome{"hello world", ""}));
  EXPECT_EQ(run({"hello"}, {}), (Outcome{"hello", ""}));
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStopString) {
  StopMatcher matcher = StopMatcher::make({"</s>", "stop"}).value();
  EXPECT_EQ(matcher.push("abc</"), "abc");
  EXPECT_EQ(matcher.held_bytes(), 2u);
  EXPECT_EQ(matcher.push("x"), "</x");
  EXPECT_EQ(matcher.push("sto"), "");
  EXPECT_EQ(matcher.push("sto"), "sto");
  EXPECT_EQ(matcher.finish(), "sto");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, EndsBeforeTheStopStringOrBehindIt) {
  EXPECT_EQ(run({"a E", "N", "D b"}, {"END"}), (Outcome{"a ", "END"}));
  EXPECT_EQ(run({"a E", "N", "D b"}, {"END"}, StopMatcher::MatchedText::included),
            (Outcome{"a END", "END"}));
}

TEST(StopMatcher, ReleasesNothingAfterAMatch) {
  StopMatcher matcher = StopMatcher::make({"x"}).value();
  EXPECT_EQ(matcher.push("axb"), "a");
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, TheFirstToEndWinsAndThenTheLongest) {
  EXPECT_EQ(run({"abcd"}, {"abcd", "bc"}), (Outcome{"a", "bc"}));
  EXPECT_EQ(run({"xabc"}, {"bc", "abc"}), (Outcome{"x", "abc"}));
}

TEST(StopMatcher, AnEmptyStopStringIsRefusedByName) {
  const auto matcher = StopMatcher::make({"a", ""});
  ASSERT_FALSE(matcher.ok());
  EXPECT_NE(matcher.error().message.find("stop"), std::string::npos);
}

TEST(StopMatcher, AnySplitOfAnyTextEqualsTheSearch) {
  std::mt19937 random(7);
  // Few letters and short strings, so that overlaps and false beginnings are frequent.
  const auto word = [&](std::size_t least, std::size_t most) {
    std::string text(least + random() % (most - least + 1), ' ');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> stops;
    for (std::size_t n = random() % 4 + 1; n > 0; --n) stops.push_back(word(2, 7));
    const std::string text = word(0, 40);
    for (const bool included : {false, true}) {
      const Outcome expected = by_search(text, stops, included);
      const auto mode =
          included ? StopMatcher::MatchedText::included : StopMatcher::MatchedText::excluded;
      for (const auto& pieces : testing::splits_of(text, 5)) {
        ASSERT_EQ(run(pieces, stops, mode), expected) << text;
      }
    }
  }
}

}  // namespace
}  // namespace replayssm
