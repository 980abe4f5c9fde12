// Faults C04 (jundot/omlx#825) and C07 (basecompute/baseRT#26), D01 (ikawrakow/ik_llama.cpp#1932)
// with the cache on: after a hit tool calls stop, and with a shared prefix the arguments of
// parallel calls mix. As far as the engine goes: tokens of the embedded model, which can make calls
// and remember codewords. Parsing calls is the server's.
#include <gtest/gtest.h>

#include <string>

#include "cached_engine.h"
#include "source_dir.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace replayssm {
namespace {

class SharedPrefixes : public ::testing::Test {
 protected:
  SharedPrefixes()
      : directory_(source_dir() / "models/tiny"),
        tokenizer_(Tokenizer::load(directory_).value()),
        template_(ChatTemplate::load(directory_).value()) {
    options_.model_path = directory_;
    options_.max_running_requests = 8;
    options_.kept_sequences_least = 10;
    options_.context_length = 512;
    options_.step_tokens = 40;  // prompts come in pieces, beside the others' decoding
    options_.poison = Poison::on;
  }

  std::vector<TokenId> chat(const nlohmann::ordered_json& messages,
                            const nlohmann::ordered_json& tools = nullptr) {
    nlohmann::ordered_json context;
    context["messages"] = messages;
    if (!tools.is_null()) context["tools"] = tools;
    context["add_generation_prompt"] = true;
    return tokenizer_.encode(template_.render(context).value());
  }
  // How many tokens all of them begin with.
  static int shared(const std::vector<std::vector<TokenId>>& prompts) {
    int common = 0;
    const auto same = [&] {
      for (const auto& prompt : prompts) {
        if (prompt[static_cast<std::size_t>(common)] !=
            prompts[0][static_cast<std::size_t>(common)]) {
          return false;
        }
      }
      return true;
    };
    while (same()) ++common;
    return common;
  }
  // The answers, asked one after the other or all at once.
  std::vector<std::string> ask(CachedEngine& cached,
                               const std::vector<std::vector<TokenId>>& prompts, bool at_once) {
    const int branch = shared(prompts);
    std::vector<std::string> answers;
    const auto run = [&] {
      for (const Finished& finished : run_all(*cached.scheduler)) {
        answers.push_back(tokenizer_.decode(finished.output, false));
        reused_ += finished.reused_tokens;
      }
    };
    for (const auto& prompt : prompts) {
      GenerationRequest request{prompt, greedy(), 60, false};
      request.branch_points = {branch};
      EXPECT_TRUE(cached.scheduler->submit(std::move(request)).ok());
      if (!at_once) run();
    }
    if (at_once) run();
    return answers;
  }

  std::filesystem::path directory_;
  Tokenizer tokenizer_;
  ChatTemplate template_;
  EngineOptions options_;
  int reused_ = 0;
};

TEST_F(SharedPrefixes, C07EightCallsWithOneSystemPromptEachHaveTheirOwnArguments) {
  const auto tools = nlohmann::ordered_json::parse(R"([{"type": "function", "function": {
      "name": "order_product", "description": "Order a product.", "parameters": {"type": "object",
      "properties": {"product": {"type": "string"}, "amount": {"type": "integer"}},
      "required": ["product", "amount"]}}}])");
  std::vector<std::vector<TokenId>> prompts;
  for (int i = 2; i < 10; ++i) {
    prompts.push_back(
        chat({{{"role", "user"}, {"content", fmt::format("Order {} of grass.", i)}}}, tools));
  }
  CachedEngine cached(options_, 64, 1 << 26);
  for (int round = 0; round < 3; ++round) {  // C04: a second time, and once more
    for (const bool at_once : {false, true}) {
      const auto answers = ask(cached, prompts, at_once);
      ASSERT_EQ(answers.size(), 8u);
      for (int i = 2; i < 10; ++i) {
        EXPECT_EQ(answers[static_cast<std::size_t>(i - 2)],
                  fmt::format("<tool_call>\n<function=order_product>\n<parameter=product>\ngrass\n"
                              "</parameter>\n<parameter=amount>\n{}\n</parameter>\n</function>\n"
                              "</tool_call>",
                              i))
            << round << (at_once ? " at once" : " one by one");
      }
    }
  }
  EXPECT_GT(reused_, 0);
  cached.expect_nothing_held();
}

TEST_F(SharedPrefixes, D01EightParallelRequestsWithOnePrefixEachEchoTheirOwnCodeword) {
  const std::vector<std::string> codewords{"garden-854", "lantern-482", "turtle-469", "bridge-117",
                                           "window-305", "candle-690",  "river-231",  "apple-918"};
  std::vector<std::vector<TokenId>> prompts;
  for (const std::string& codeword : codewords) {
    prompts.push_back(chat({{{"role", "user"}, {"content", "Remember this codeword: " + codeword}},
                            {{"role", "assistant"}, {"content", "I will remember the codeword."}},
                            {{"role", "user"}, {"content", "What is the codeword?"}}}));
  }
  CachedEngine cached(options_, 16);
  for (const bool at_once : {true, false, true}) {
    const auto answers = ask(cached, prompts, at_once);
    ASSERT_EQ(answers.size(), codewords.size());
    for (std::size_t i = 0; i < codewords.size(); ++i) EXPECT_EQ(answers[i], codewords[i]);
  }
  cached.expect_nothing_held();
}

}  // namespace
}  // namespace replayssm
