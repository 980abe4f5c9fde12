// M02 (lightseekorg/smg#2203): stop strings applied to one of streamed and unstreamed answers only.
// Both modes read the same matcher; the text and the reason to stop must not depend on the pieces.
#include <gtest/gtest.h>

#include "splits.h"
#include "text/stop_matcher.h"

namespace replayssm {
namespace {

TEST(M02, StreamedAndUnstreamedTextAndReasonAreEqual) {
  const std::vector<std::string> stops = {"STOP", "\n\n", "OPS"};
  for (const std::string text :
       {"one STOP two", "one\ntwo\n\nthree", "no stop string, STO P", "aSTOPS", "ST\n\nOP", ""}) {
    StopMatcher whole = StopMatcher::make(stops).value();
    const std::string unstreamed = whole.push(text) + whole.finish();
    for (const auto& pieces : testing::splits_of(text)) {
      StopMatcher matcher = StopMatcher::make(stops).value();
      std::string streamed;
      for (const std::string& piece : pieces) streamed += matcher.push(piece);
      streamed += matcher.finish();
      ASSERT_EQ(streamed, unstreamed);
      ASSERT_EQ(matcher.matched(), whole.matched());
    }
  }
}

}  // namespace
}  // namespace replayssm
