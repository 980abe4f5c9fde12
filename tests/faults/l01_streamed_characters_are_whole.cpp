// L01, Luce-Org/lucebox#641, waybarrios/vllm-mlx#109, Blaizzy/mlx-vlm#1778 and #1771: U+FFFD in
// streamed text, because a token is not a character.
#include <gtest/gtest.h>

#include <map>

#include "text/detokenizer.h"
#include "text/utf8.h"
#include "unit/text_golden_files.h"

namespace replayssm {
namespace {

class L01 : public testing::Test {
 protected:
  L01() {
    for (TokenId id = 0; id < tokenizer_.size(); ++id) {
      if (tokenizer_.token_bytes(id).size() == 1) byte_token_[tokenizer_.token_bytes(id)[0]] = id;
    }
  }

  void expect_whole(const std::vector<TokenId>& ids, const std::string& text) const {
    Detokenizer detokenizer(tokenizer_);
    std::string streamed;
    for (const TokenId id : ids) {
      const std::string delta = detokenizer.push(id);
      EXPECT_TRUE(is_utf8(delta)) << text;
      EXPECT_EQ(delta.find(kReplacementCharacter), std::string::npos) << text;
      streamed += delta;
    }
    EXPECT_EQ(detokenizer.finish(), "") << text;
    EXPECT_EQ(streamed, text);
  }

  const Tokenizer tokenizer_ = load_test_tokenizer("qwen35");
  std::map<char, TokenId> byte_token_;
};

TEST_F(L01, EmojiHanFamiliesAndThaiArriveWholeHoweverTheyAreSplit) {
  for (const std::string text :
       {"\U0001F600", "\u6f22\u5b57", "\U0001F468\u200d\U0001F469\u200d\U0001F467\u200d\U0001F466",
        "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "a\u00e9\u4e2d\U0001F3F4z"}) {
    expect_whole(tokenizer_.encode(text), text);
    std::vector<TokenId> bytes;  // one token a byte: every split there is
    for (const char byte : text) bytes.push_back(byte_token_.at(byte));
    expect_whole(bytes, text);
  }
}

TEST_F(L01, EveryTextOfTheGoldenFilesArrivesWhole) {
  const auto goldens = read_golden_file("qwen35/goldens.json");
  for (const auto& entry : goldens["encode"]) {
    const auto ids = entry[1].get<std::vector<TokenId>>();
    const std::string text = tokenizer_.decode(ids);
    if (text.find(kReplacementCharacter) == std::string::npos) expect_whole(ids, text);
  }
}

}  // namespace
}  // namespace replayssm
