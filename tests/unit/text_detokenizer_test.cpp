#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "text/utf8.h"
#include "unit/text_golden_files.h"

namespace replayssm {
namespace {

using Ids = std::vector<TokenId>;

class DetokenizerTest : public testing::Test {
 protected:
  DetokenizerTest() {
    for (TokenId id = 0; id < tokenizer_.size(); ++id) {
      const std::string_view bytes = tokenizer_.token_bytes(id);
      if (bytes.size() == 1 && !tokenizer_.is_added(id)) byte_token_[bytes[0]] = id;
    }
  }

  // One token a byte: characters split wherever they can be.
  Ids tokens_of_bytes(std::string_view bytes) const {
    Ids ids;
    for (const char byte : bytes) ids.push_back(byte_token_.at(byte));
    return ids;
  }

  // What a client has seen at the end; checks every piece on the way.
  std::string streamed(const Ids& ids, bool skip_special = true) const {
    Detokenizer detokenizer(tokenizer_, skip_special);
    std::string text;
    for (const TokenId id : ids) {
      const std::string piece = detokenizer.push(id);
      EXPECT_TRUE(is_utf8(piece));
      text += piece;
    }
    return text + detokenizer.finish();
  }

  const Tokenizer tokenizer_ = load_test_tokenizer("qwen35");
  std::map<char, TokenId> byte_token_;
};

TEST_F(DetokenizerTest, ConcatenatesToTheWholeDecodingOfAnyTokens) {
  for (const char* name : {"qwen3", "qwen35"}) {
    const Tokenizer tokenizer = load_test_tokenizer(name);
    const auto goldens = read_golden_file(std::string(name) + "/goldens.json");
    for (const auto& entry : goldens["decode"]) {
      for (const bool skip_special : {false, true}) {
        Detokenizer detokenizer(tokenizer, skip_special);
        std::string text;
        for (const TokenId id : entry[0].get<Ids>()) text += detokenizer.push(id);
        text += detokenizer.finish();
        EXPECT_EQ(text, entry[skip_special ? 2 : 1].get<std::string>()) << entry[0];
      }
    }
  }
}

TEST_F(DetokenizerTest, ConcatenatesToTheWholeDecodingOfRandomBytes) {
  std::mt19937 random(1);  // NOLINT: the same bytes every time
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    while (bytes.size() < 12) {
      // Mostly leads and continuations, so that nearly valid sequences are frequent.
      constexpr std::string_view kLikely = "a\x80\x8F\x90\x9F\xA0\xBF\xC2\xE0\xE2\xED\xF0\xF4";
      bytes += random() % 4 == 0 ? static_cast<char>(random()) : kLikely[random() % kLikely.size()];
    }
    const Ids ids = tokens_of_bytes(bytes);
    ASSERT_EQ(streamed(ids), tokenizer_.decode(ids));
    ASSERT_EQ(tokenizer_.decode(ids), repaired_utf8(bytes));
  }
}

TEST_F(DetokenizerTest, EmitsACharacterWithItsLastByteAndNotBefore) {
  Detokenizer detokenizer(tokenizer_);
  const Ids ids = tokens_of_bytes("\U0001F600");
  EXPECT_EQ(detokenizer.push(ids[0]), "");
  EXPECT_EQ(detokenizer.push(ids[1]), "");
  EXPECT_EQ(detokenizer.push(ids[2]), "");
  EXPECT_EQ(detokenizer.push(ids[3]), "\U0001F600");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST_F(DetokenizerTest, EmitsTheReplacementAsSoonAsNoByteCanRepairTheSequence) {
  Detokenizer detokenizer(tokenizer_);
  EXPECT_EQ(detokenizer.push(byte_token_.at('\xE4')), "");
  EXPECT_EQ(detokenizer.push(byte_token_.at('\xB8')), "");
  EXPECT_EQ(detokenizer.push(byte_token_.at('x')), "\uFFFDx");
  EXPECT_EQ(detokenizer.replaced_earlier(), 1u);
  EXPECT_EQ(detokenizer.push(byte_token_.at('\xFF')), "\uFFFD");
  EXPECT_EQ(detokenizer.replaced_earlier(), 0u);
}

TEST_F(DetokenizerTest, SpecialTokensNeitherShowNorBreakACharacter) {
  Ids ids = tokens_of_bytes("\u6f22");
  ids.insert(ids.begin() + 1, *tokenizer_.eos());
  EXPECT_EQ(streamed(ids), "\u6f22");
  EXPECT_EQ(streamed(ids), tokenizer_.decode(ids, true));
  EXPECT_EQ(streamed(ids, false), tokenizer_.decode(ids, false));
  EXPECT_NE(streamed(ids, false).find("<|im_end|>"), std::string::npos);
}

TEST_F(DetokenizerTest, IsAsNewAfterFinish) {
  Detokenizer detokenizer(tokenizer_);
  detokenizer.push(byte_token_.at('\xF0'));
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.finish(), "");
  EXPECT_EQ(detokenizer.push(byte_token_.at('a')), "a");
}

}  // namespace
}  // namespace replayssm
