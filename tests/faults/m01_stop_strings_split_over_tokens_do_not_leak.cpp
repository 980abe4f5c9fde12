// M01 (SharpAI/SwiftLM#126, #133): a stop string that came in several tokens showed in the stream.
#include <gtest/gtest.h>

#include "text/stop_matcher.h"

namespace replayssm {
namespace {

std::vector<std::string> deltas(const std::vector<std::string>& tokens,
                                const std::vector<std::string>& stops) {
  StopMatcher matcher = StopMatcher::make(stops).value();
  std::vector<std::string> out;
  for (const std::string& token : tokens) {
    if (std::string delta = matcher.push(token); !delta.empty()) out.push_back(std::move(delta));
    if (matcher.stopped()) return out;
  }
  if (std::string rest = matcher.finish(); !rest.empty()) out.push_back(std::move(rest));
  return out;
}

TEST(M01, TheTextEndsBeforeAStopStringThatCameInThreeTokens) {
  EXPECT_EQ(deltas({"it ", "E", "N", "D x"}, {"END"}), (std::vector<std::string>{"it "}));
}

TEST(M01, AHeldTailComesOutIfNothingMatched) {
  EXPECT_EQ(deltas({"it ", "E", "N"}, {"END"}), (std::vector<std::string>{"it ", "EN"}));
  EXPECT_EQ(deltas({"E", "N", "E", "ND"}, {"END"}), (std::vector<std::string>{"EN"}));
}

TEST(M01, SeveralStopStringsAreHeldBackTogether) {
  EXPECT_EQ(deltas({"a\n", "\nUs", "er: b"}, {"\n\nUser:", "\n\nHuman:"}),
            (std::vector<std::string>{"a"}));
}

}  // namespace
}  // namespace replayssm
