// ggml-org/llama.cpp#27174, EleutherAI/lm-evaluation-harness#4158: echo without logprobs scored at
// chance. NVIDIA/TensorRT-Edge-LLM#93: chunks without object. mlcommons/endpoints#133: no refusal.
// pi #4558: no finish_reason, or several.
#include "../server/api_harness.h"

namespace replayssm::server {
namespace {

TEST(R01, EchoWithLogprobsHasTheLegacyShape) {
  ApiHarness harness(saying(" x"));
  const std::vector<TokenId> prompt = tiny_frontend().tokenizer().encode("It was a bright morning");
  const Json answer = body_json(harness.post("/v1/completions", {{"prompt", Json::array({prompt})},
                                                                 {"max_tokens", 1},
                                                                 {"logprobs", 1},
                                                                 {"echo", true},
                                                                 {"temperature", 0},
                                                                 {"seed", 1234}}));
  EXPECT_TRUE(harness.engine.requests().at(0).prompt_logprobs);
  const Json& logprobs = answer["choices"][0]["logprobs"];
  const std::size_t tokens = prompt.size() + 1;
  for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    ASSERT_EQ(logprobs[list].size(), tokens) << list;
  }
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  std::string text;
  for (std::size_t i = 0; i < tokens; ++i) {
    EXPECT_EQ(logprobs["text_offset"][i], text.size());
    text += logprobs["tokens"][i].get<std::string>();
    if (i == 0) continue;
    EXPECT_EQ(logprobs["token_logprobs"][i], -0.25);
    EXPECT_EQ(logprobs["top_logprobs"][i][logprobs["tokens"][i].get<std::string>()], -0.25);
  }
  EXPECT_EQ(text, answer["choices"][0]["text"]);
}

TEST(R02, EveryChunkNamesItsObject) {
  ApiHarness harness(saying("Hello there"));
  for (const Json& event :
       events_of(harness.post("/v1/chat/completions", chat_body("Hi", true)).stream)) {
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    for (const char* member : {"id", "created", "model", "choices"})
      EXPECT_TRUE(event.contains(member));
  }
  const Received text = harness.post("/v1/completions", {{"prompt", "a"}, {"stream", true}});
  for (const Json& event : events_of(text.stream)) EXPECT_EQ(event["object"], "text_completion");
}

TEST(R03, AMessageHasARefusalEvenIfNull) {
  ApiHarness harness(saying("Hello"));
  const Json message =
      body_json(harness.post("/v1/chat/completions", chat_body("Hi")))["choices"][0]["message"];
  ASSERT_TRUE(message.contains("refusal"));
  EXPECT_TRUE(message["refusal"].is_null());
}

TEST(R04, ExactlyOneFinishReasonBeforeTheUsage) {
  const std::string call = "<tool_call>\n<function=f>\n</function>\n</tool_call>";
  const struct {
    std::string text;
    Json fields;
    std::string reason;
  } cases[] = {
      {"Hello there", Json::object(), "stop"},
      {"Hello END there", {{"stop", "END"}}, "stop"},
      {"Hello there, my friend", {{"max_tokens", 2}}, "length"},
      {call,
       {{"tools", Json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}})}},
       "tool_calls"},
  };
  for (const auto& test : cases) {
    ApiHarness harness(saying(test.text));
    Json body = chat_body("Hi", true);
    body["stream_options"] = {{"include_usage", true}};
    body.update(test.fields);
    const Assembled all = assemble(harness.post("/v1/chat/completions", body).stream);
    EXPECT_EQ(all.finish_reasons, std::vector<std::string>{test.reason});
    EXPECT_FALSE(all.usage_before_finish);
    EXPECT_TRUE(all.usage.is_object());
  }
}

}  // namespace
}  // namespace replayssm::server
