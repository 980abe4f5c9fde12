// L03, reported as ferrox #124: the decoder's state was shared between requests, so that the halves
// of two streams' characters met.
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "text/detokenizer.h"
#include "unit/text_golden_files.h"

namespace replayssm {
namespace {

class L03 : public testing::Test {
 protected:
  L03() {
    for (TokenId id = 0; id < tokenizer_.size(); ++id) {
      if (tokenizer_.token_bytes(id).size() == 1) byte_token_[tokenizer_.token_bytes(id)[0]] = id;
    }
  }
  const Tokenizer tokenizer_ = load_test_tokenizer("qwen35");
  std::map<char, TokenId> byte_token_;
};

TEST_F(L03, TwoStreamsTakingTurnsKeepTheirCharacters) {
  const std::string first = "\U0001F600\U0001F601\U0001F602";
  const std::string second = "\U00020000\U0001F9D1\U0001F680";
  Detokenizer a(tokenizer_);
  Detokenizer b(tokenizer_);
  std::string text_a;
  std::string text_b;
  for (std::size_t i = 0; i < first.size(); ++i) {
    text_a += a.push(byte_token_.at(first[i]));
    text_b += b.push(byte_token_.at(second[i]));
  }
  EXPECT_EQ(text_a + a.finish(), first);
  EXPECT_EQ(text_b + b.finish(), second);
}

TEST_F(L03, StreamsOnSeveralThreadsShareOneTokenizer) {
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < texts.size(); ++t) {
    threads.emplace_back([this, t, &texts] {
      Detokenizer detokenizer(tokenizer_);
      const std::string face = "\U0001F600";
      for (int i = 0; i < 200; ++i) {
        for (const char byte : face) texts[t] += detokenizer.push(byte_token_.at(byte));
        texts[t] += std::to_string(t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 0; t < texts.size(); ++t) {
    std::string expected;
    for (int i = 0; i < 200; ++i) expected += fmt::format("\U0001F600{}", t);
    EXPECT_EQ(texts[t], expected);
  }
}

}  // namespace
}  // namespace replayssm
