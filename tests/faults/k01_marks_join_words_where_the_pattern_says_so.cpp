// K01, invergent-ai/surogate#105: Qwen3.5 splits words as [\p{L}\p{M}]+ and Qwen3 as \p{L}+; with
// the other family's pattern, Hindi, Thai and decomposed accents get other ids.
#include <gtest/gtest.h>

#include <map>

#include "text/split_pattern.h"
#include "unit/text_golden_files.h"

namespace replayssm {
namespace {

constexpr const char* kHindi = "\u0939\u093f\u0928\u094d\u0926\u0940";
constexpr const char* kThai = "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35";
constexpr const char* kAccents = "e\u0301 \u00e9 e\u0301e\u0301";

TEST(K01, IdsOfWordsWithMarksAreThoseOfTokenizers) {
  std::map<std::string, std::map<std::string, std::vector<TokenId>>> ids;
  for (const char* name : {"qwen3", "qwen35"}) {
    const Tokenizer tokenizer = load_test_tokenizer(name);
    int seen = 0;
    const auto goldens = read_golden_file(std::string(name) + "/goldens.json");
    for (const auto& entry : goldens["encode"]) {
      const auto text = entry[0].get<std::string>();
      if (text != kHindi && text != kThai && text != kAccents) continue;
      ++seen;
      EXPECT_EQ(tokenizer.encode(text), entry[1].get<std::vector<TokenId>>()) << name << text;
    }
    EXPECT_EQ(seen, 3);
  }
}

std::vector<std::string> words(SplitPattern pattern, std::string_view text) {
  std::vector<std::string> list;
  while (!text.empty()) {
    const std::size_t size = first_word(pattern, text);
    list.emplace_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return list;
}

TEST(K01, AMarkEndsAWordOfQwen3AndNotOneOfQwen35) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(words(SplitPattern::qwen35, kHindi), Words{kHindi});
  EXPECT_EQ(words(SplitPattern::qwen3, kHindi),
            (Words{"\u0939", "\u093f\u0928", "\u094d\u0926", "\u0940"}));
  EXPECT_EQ(words(SplitPattern::qwen35, "a \u0301b"), (Words{"a", " \u0301b"}));
  EXPECT_EQ(words(SplitPattern::qwen3, "a \u0301b"), (Words{"a", " \u0301", "b"}));
}

}  // namespace
}  // namespace replayssm
