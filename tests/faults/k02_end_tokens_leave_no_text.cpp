// K02, exo-explore/exo#1644: a family has two end tokens and either may come; neither may leak into
// the text. (That both end a generation is the model loader's part.)
#include <gtest/gtest.h>

#include "text/detokenizer.h"
#include "unit/text_golden_files.h"

namespace replayssm {
namespace {

TEST(K02, NeitherEndTokenShowsInTheStreamOrInTheWhole) {
  const Tokenizer tokenizer = load_test_tokenizer("qwen35");
  const std::vector<TokenId> hello = tokenizer.encode("Hello \u4e16");
  for (const char* end : {"<|im_end|>", "<|endoftext|>"}) {
    ASSERT_TRUE(tokenizer.id_of(end)) << end;
    std::vector<TokenId> ids = hello;
    ids.push_back(*tokenizer.id_of(end));
    Detokenizer detokenizer(tokenizer);
    std::string text;
    for (const TokenId id : ids) text += detokenizer.push(id);
    text += detokenizer.finish();
    EXPECT_EQ(text, "Hello \u4e16");
    EXPECT_EQ(tokenizer.decode(ids, /*skip_special=*/true), "Hello \u4e16");
  }
  // Tokens that are added but not special are text: <think> is for the reasoning parser to see.
  EXPECT_EQ(tokenizer.decode(std::vector{*tokenizer.id_of("<think>")}, true), "<think>");
}

}  // namespace
}  // namespace replayssm
