// Fault D01 (ikawrakow/ik_llama.cpp#1932): with three requests at once and more, slots bleed into
// each other, and one request's text turns up in another's.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "engine/scheduler.h"
#include "small_engine.h"
#include "source_dir.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace replayssm {
namespace {

constexpr std::array<const char*, 6> kCodewords{"garden-854", "lantern-482", "turtle-469",
                                                "bridge-117", "window-305",  "candle-690"};

TEST(D01, SixParallelRequestsEachEchoTheirOwnCodeword) {
  const auto directory = source_dir() / "models/tiny";
  const auto tokenizer = Tokenizer::load(directory);
  const auto chat_template = ChatTemplate::load(directory);
  ASSERT_TRUE(tokenizer.ok() && chat_template.ok());
  EngineOptions options;
  options.model_path = directory;
  options.max_running_requests = 6;
  options.context_length = 256;
  options.step_tokens = 20;  // prompts come in pieces, beside the others' decoding
  options.poison = Poison::on;
  const auto engine = make_engine(options);
  ASSERT_TRUE(engine);
  Scheduler scheduler(*engine);
  for (const char* codeword : kCodewords) {
    nlohmann::ordered_json context;
    context["messages"] = {
        {{"role", "user"}, {"content", std::string("Remember this codeword: ") + codeword}},
        {{"role", "assistant"}, {"content", "I will remember the codeword."}},
        {{"role", "user"}, {"content", "What is the codeword?"}}};
    context["add_generation_prompt"] = true;
    const auto prompt = chat_template->render(context);
    ASSERT_TRUE(prompt.ok());
    ASSERT_TRUE(scheduler.submit({tokenizer->encode(*prompt), greedy(), 30, false}).ok());
  }
  const auto finished = run_all(scheduler);
  ASSERT_EQ(finished.size(), kCodewords.size());
  for (std::size_t i = 0; i < finished.size(); ++i) {
    EXPECT_EQ(tokenizer->decode(finished[i].output, true), kCodewords[i]);
  }
}

}  // namespace
}  // namespace replayssm
