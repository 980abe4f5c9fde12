// K03, ggml-org/llama.cpp#7049: runs of newlines were cut where the reference merges them.
#include <gtest/gtest.h>

#include <set>

#include "text/split_pattern.h"
#include "unit/text_golden_files.h"

namespace replayssm {
namespace {

TEST(K03, IdsOfNewlinesAndSpacesAreThoseOfTokenizers) {
  const std::set<std::string> reported = {"a\n\n\nb",  "\n\n", " \n \n", "\n \n a",
                                          "a \n\n  b", "\r\n", "\r",     "\n\r\n\r"};
  for (const char* name : {"qwen3", "qwen35"}) {
    const Tokenizer tokenizer = load_test_tokenizer(name);
    std::set<std::string> seen;
    const auto goldens = read_golden_file(std::string(name) + "/goldens.json");
    for (const auto& entry : goldens["encode"]) {
      const auto text = entry[0].get<std::string>();
      if (!reported.contains(text)) continue;
      seen.insert(text);
      EXPECT_EQ(tokenizer.encode(text), entry[1].get<std::vector<TokenId>>()) << entry[0];
    }
    EXPECT_EQ(seen, reported);
  }
}

TEST(K03, ARunOfNewlinesOfAnyLengthIsOneWord) {
  for (const SplitPattern pattern : {SplitPattern::qwen3, SplitPattern::qwen35}) {
    for (std::size_t length = 1; length < 200; ++length) {
      std::string newlines(length, '\n');
      newlines += "  b";
      EXPECT_EQ(first_word(pattern, newlines), length)
          << "white space goes with the last newline, not with the next word";
      newlines.insert(0, 1, ' ');
      EXPECT_EQ(first_word(pattern, newlines), length + 1);
      std::string spaces(length, ' ');
      spaces += 'b';
      EXPECT_EQ(first_word(pattern, spaces), length == 1 ? 2 : length - 1);
      EXPECT_EQ(first_word(pattern, std::string(length, ' ')), length);
    }
  }
}

}  // namespace
}  // namespace replayssm
