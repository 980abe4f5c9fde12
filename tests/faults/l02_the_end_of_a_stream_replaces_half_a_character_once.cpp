// L02, ai-dynamo/dynamo#12630: bytes lost or doubled when a stream ends inside a character.
#include <gtest/gtest.h>

#include <map>

#include "text/detokenizer.h"
#include "unit/text_golden_files.h"

namespace replayssm {
namespace {

TEST(L02, AStreamThatEndsInsideACharacterEndsWithOneReplacement) {
  const Tokenizer tokenizer = load_test_tokenizer("qwen35");
  std::map<char, TokenId> byte_token;
  for (TokenId id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.token_bytes(id).size() == 1) byte_token[tokenizer.token_bytes(id)[0]] = id;
  }
  const std::string text = "ok \U0001F600";
  for (std::size_t size = 0; size <= text.size(); ++size) {
    Detokenizer detokenizer(tokenizer);
    std::vector<TokenId> ids;
    std::string streamed;
    for (std::size_t i = 0; i < size; ++i) {
      ids.push_back(byte_token.at(text[i]));
      streamed += detokenizer.push(ids.back());
    }
    const bool inside = size > 3 && size < text.size();
    EXPECT_EQ(streamed, inside ? "ok " : text.substr(0, size)) << "nothing before it is certain";
    const std::string last = detokenizer.finish();
    EXPECT_EQ(last, inside ? "\uFFFD" : "") << size;
    EXPECT_EQ(streamed + last, tokenizer.decode(ids));
    EXPECT_EQ(detokenizer.finish(), "") << "and only once";
  }
}

}  // namespace
}  // namespace replayssm
