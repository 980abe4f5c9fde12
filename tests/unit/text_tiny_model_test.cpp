// The embedded model's tokenizer and chat template against Hugging Face's transformers.
#include <gtest/gtest.h>

#include "source_dir.h"
#include "text/chat_template.h"
#include "unit/text_golden_files.h"

namespace replayssm {
namespace {

using Ids = std::vector<TokenId>;

std::filesystem::path tiny() { return source_dir() / "models/tiny"; }

TEST(TinyModel, EncodesTextAsTransformersDoes) {
  const Result<Tokenizer> tokenizer = Tokenizer::load(tiny());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto goldens = read_golden_file("tiny_goldens.json");
  ASSERT_GT(goldens["encode"].size(), 60u);
  for (const auto& entry : goldens["encode"]) {
    const auto text = entry[0].get<std::string>();
    EXPECT_EQ(tokenizer->encode_with_added_tokens(text), entry[1].get<Ids>()) << text;
  }
}

TEST(TinyModel, RendersConversationsAsTransformersDoesAndGivesTheSameIds) {
  const Result<Tokenizer> tokenizer = Tokenizer::load(tiny());
  const Result<ChatTemplate> chat = ChatTemplate::load(tiny());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  const auto goldens = read_golden_file("tiny_goldens.json");
  ASSERT_GT(goldens["prompts"].size(), 60u);
  for (const auto& entry : goldens["prompts"]) {
    SCOPED_TRACE(entry[0].dump());
    const Result<RenderedPrompt> prompt = chat->render(entry[0]);
    if (entry[1].contains("error")) {
      ASSERT_FALSE(prompt.ok());
      EXPECT_NE(prompt.error().message.find(entry[1]["error"].get<std::string>()),
                std::string::npos)
          << prompt.error().message << " against " << entry[1]["error"];
      continue;
    }
    ASSERT_TRUE(prompt.ok()) << prompt.error().message;
    EXPECT_EQ(text_of(*prompt), entry[1]["text"].get<std::string>());
    // The same ids although the messages are not trusted: none of them spells a control token,
    // but for those that templates write around them.
    EXPECT_EQ(tokenizer->encode(*prompt), entry[1]["ids"].get<Ids>());
  }
}

TEST(TinyModel, HasTheTokensThatChatNeeds) {
  const Result<Tokenizer> tokenizer = Tokenizer::load(tiny());
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->eos(), tokenizer->id_of("<|im_end|>"));
  for (const char* name : {"<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>",
                           "</tool_call>", "<tool_response>", "</tool_response>"}) {
    EXPECT_TRUE(tokenizer->id_of(name)) << name;
  }
}

}  // namespace
}  // namespace replayssm
