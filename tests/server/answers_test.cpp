// Chat answers, streamed and whole: the shape of the contract and the same text either way.
#include "api_harness.h"

namespace replayssm::server {
namespace {

TEST(ChatAnswer, AWholeAnswerHasTheShapeOfTheContract) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("Hello there"); });
  const Received received = harness.post(kChat, chat_body("Hi"));
  ASSERT_EQ(received.response.status, 200);
  const Json body = body_json(received);
  EXPECT_TRUE(body["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_TRUE(body["created"].is_number_integer());
  EXPECT_EQ(body["model"], "tiny");
  EXPECT_TRUE(body["system_fingerprint"].is_string());
  ASSERT_EQ(body["choices"].size(), 1u);
  const Json& choice = body["choices"][0];
  EXPECT_EQ(choice["index"], 0);
  EXPECT_EQ(choice["message"],
            (Json{{"role", "assistant"}, {"content", "Hello there"}, {"refusal", nullptr}}));
  EXPECT_TRUE(choice["logprobs"].is_null());
  EXPECT_EQ(choice["finish_reason"], "stop");
  const Json& usage = body["usage"];
  const int prompt = static_cast<int>(harness.engine.requests()[0].prompt.size());
  const int output = static_cast<int>(says("Hello there").tokens.size());
  EXPECT_EQ(usage["prompt_tokens"], prompt);
  EXPECT_EQ(usage["completion_tokens"], output);
  EXPECT_EQ(usage["total_tokens"], prompt + output);
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_TRUE(usage["prompt_tokens_details"]["cached_tokens_lost_reason"].is_null());
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], 0);
  for (const char* field : {"cache_n", "prompt_n", "prompt_ms", "predicted_n", "predicted_ms"}) {
    EXPECT_TRUE(body["timings"].contains(field)) << field;
  }
}

TEST(ChatAnswer, AStreamHasRoleThenTextThenOneFinishReasonThenUsageThenDone) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("Hello there"); });
  Json body = chat_body("Hi", true);
  body["stream_options"] = {{"include_usage", true}};
  const Received received = harness.post(kChat, body);
  ASSERT_TRUE(received.streamed);
  EXPECT_TRUE(received.stream.ends_with("\n\ndata: [DONE]\n\n"));
  EXPECT_EQ(received.after, Exchange::After::keep_open);
  const std::vector<Json> events = events_of(received.stream);
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  for (const Json& event : events) {
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    EXPECT_EQ(event["id"], events[0]["id"]);
    EXPECT_EQ(event["created"], events[0]["created"]);
    EXPECT_EQ(event["model"], "tiny");
  }
  const Json& last = events.back();
  EXPECT_TRUE(last["choices"].empty());
  EXPECT_EQ(last["usage"]["completion_tokens"], says("Hello there").tokens.size());
  const Assembled all = assemble(received.stream);
  EXPECT_EQ(all.content, "Hello there");
  EXPECT_EQ(all.finish_reasons, std::vector<std::string>{"stop"});
  EXPECT_FALSE(all.usage_before_finish);
}

TEST(ChatAnswer, WithoutIncludeUsageNoChunkHasUsage) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("Hello"); });
  const Received received = harness.post(kChat, chat_body("Hi", true));
  for (const Json& event : events_of(received.stream)) EXPECT_FALSE(event.contains("usage"));
}

TEST(ChatAnswer, ContinuousUsageCountsUp) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("Hello there, my friend"); });
  Json body = chat_body("Hi", true);
  body["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", true}};
  int last = 0;
  for (const Json& event : events_of(harness.post(kChat, body).stream)) {
    ASSERT_TRUE(event["usage"].is_object());
    EXPECT_GT(event["usage"]["prompt_tokens"], 0);
    EXPECT_GE(event["usage"]["completion_tokens"], last);
    last = event["usage"]["completion_tokens"];
  }
  EXPECT_EQ(last, static_cast<int>(says("Hello there, my friend").tokens.size()));
}

TEST(ChatAnswer, MaxTokensEndsWithLength) {
  ApiHarness harness(
      [](const GenerationRequest&, int) { return says("one two three four five six"); });
  Json body = chat_body("Hi");
  body["max_tokens"] = 3;
  const Json answer = body_json(harness.post(kChat, body));
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 3);
}

TEST(ChatAnswer, SeveralChoicesComeSortedAndStreamedWithTheirIndex) {
  const auto writer = [](const GenerationRequest&, int choice) {
    return says(choice == 0 ? "a rather long first answer" : "short");
  };
  ApiHarness harness(writer);
  Json body = chat_body("Hi");
  body["n"] = 2;
  const Json answer = body_json(harness.post(kChat, body));
  ASSERT_EQ(answer["choices"].size(), 2u);
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "a rather long first answer");
  EXPECT_EQ(answer["choices"][1]["index"], 1);
  EXPECT_EQ(answer["choices"][1]["message"]["content"], "short");
  body["stream"] = true;
  const std::string stream = harness.post(kChat, body).stream;
  EXPECT_EQ(assemble(stream, 0).content, "a rather long first answer");
  EXPECT_EQ(assemble(stream, 1).content, "short");
  EXPECT_EQ(assemble(stream, 1).finish_reasons.size(), 1u);
}

TEST(ChatAnswer, LogprobsAreTheSameStreamedAndWhole) {
  ApiHarness harness(
      [](const GenerationRequest&, int) { return says("caf\xC3\xA9 \xF0\x9F\x98\x80!"); });
  Json body = chat_body("Hi");
  body["logprobs"] = true;
  body["top_logprobs"] = 2;
  const Json whole = body_json(harness.post(kChat, body))["choices"][0]["logprobs"];
  ASSERT_EQ(whole["content"].size(), says("caf\xC3\xA9 \xF0\x9F\x98\x80!").tokens.size());
  std::string bytes;
  for (const Json& entry : whole["content"]) {
    EXPECT_EQ(entry["logprob"], -0.25);
    EXPECT_EQ(entry["top_logprobs"].size(), 2u);
    EXPECT_EQ(entry["top_logprobs"][0]["token"], entry["token"]);
    EXPECT_EQ(entry["token"].get<std::string>().find("\xEF\xBF\xBD"), std::string::npos);
    for (const Json& byte : entry["bytes"]) bytes += static_cast<char>(byte.get<int>());
  }
  EXPECT_EQ(bytes, "caf\xC3\xA9 \xF0\x9F\x98\x80!");
  body["stream"] = true;
  EXPECT_EQ(assemble(harness.post(kChat, body).stream).logprobs, whole["content"]);
}

TEST(ChatAnswer, LogprobsEndWhereTheTextEnds) {
  ApiHarness harness(
      [](const GenerationRequest&, int) { return says("one two STOP three", false); });
  Json body = chat_body("Hi");
  body["logprobs"] = true;
  body["stop"] = "STOP";
  for (const bool stream : {false, true}) {
    body["stream"] = stream;
    const Received received = harness.post(kChat, body);
    const Json entries = stream ? assemble(received.stream).logprobs
                                : body_json(received)["choices"][0]["logprobs"]["content"];
    std::string text;
    for (const Json& entry : entries) text += entry["token"].get<std::string>();
    // " S" begins in what is shown.
    EXPECT_EQ(text, "one two S");
  }
}

TEST(ChatAnswer, ReasoningIsSplitOffAndCounted) {
  ApiHarness harness(
      [](const GenerationRequest&, int) { return says("I think so.</think>\n\nYes."); }, {},
      thinking_frontend());
  Json body = chat_body("Hi");
  const Json answer = body_json(harness.post(kChat, body));
  const Json& message = answer["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "I think so.");
  EXPECT_EQ(message["content"], "Yes.");
  const int reasoning = answer["usage"]["completion_tokens_details"]["reasoning_tokens"];
  EXPECT_EQ(reasoning, static_cast<int>(says("I think so.</think>").tokens.size()));
  body["stream"] = true;
  const Assembled all = assemble(harness.post(kChat, body).stream);
  EXPECT_EQ(all.reasoning, "I think so.");
  EXPECT_EQ(all.content, "Yes.");
}

TEST(ChatAnswer, WithoutThinkingThePromptClosesTheReasoning) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("Yes."); }, {},
                     thinking_frontend());
  for (const Json& off : {Json{{"chat_template_kwargs", {{"enable_thinking", false}}}},
                          Json{{"reasoning_effort", "none"}}}) {
    Json body = chat_body("Hi");
    body.update(off);
    const Json message = body_json(harness.post(kChat, body))["choices"][0]["message"];
    EXPECT_EQ(message["content"], "Yes.") << off;
    EXPECT_FALSE(message.contains("reasoning_content"));
  }
}

TEST(ChatAnswer, ProgressIsReportedWhenAskedFor) {
  ApiHarness harness([](const GenerationRequest&, int) {
    Script script = says("Hi");
    script.prompt_steps = 3;
    return script;
  });
  Json body = chat_body("Hi", true);
  body["return_progress"] = true;
  const std::vector<Json> events = events_of(harness.post(kChat, body).stream);
  EXPECT_TRUE(events[0].contains("prompt_progress"));
  EXPECT_EQ(events[2]["prompt_progress"]["processed"], events[2]["prompt_progress"]["total"]);
}

TEST(ChatAnswer, SilenceIsFilledWithComments) {
  ScriptedEngine engine([](const GenerationRequest&, int) { return says("Hi"); });
  Api api(engine, tiny_frontend(), tiny_served(), {}, [](std::function<void()> work) { work(); });
  Received received;
  const auto exchange = std::make_shared<RecordingExchange>(received);
  api.handle({"POST", kChat, "", to_text(chat_body("Hi", true)), "", "", "id"}, exchange);
  exchange->run();
  exchange->be_silent();
  EXPECT_EQ(received.stream, ": ping\n\n");
  while (engine.step() || exchange->run()) {
  }
  EXPECT_EQ(assemble(received.stream).content, "Hi");
}

TEST(ChatAnswer, ARefusalOfTheEngineHasItsStatus) {
  struct Case {
    Refusal::Kind kind;
    int status;
    bool retry;
  };
  for (const Case& test :
       {Case{Refusal::Kind::invalid, 400, false}, Case{Refusal::Kind::too_long, 400, false},
        Case{Refusal::Kind::queue_full, 429, true}, Case{Refusal::Kind::draining, 503, true},
        Case{Refusal::Kind::failed, 503, true}}) {
    for (const bool stream : {false, true}) {
      ApiHarness harness([](const GenerationRequest&, int) { return says("Hi"); });
      harness.engine.refuse_next = Refusal{test.kind, "max_tokens", "max_tokens: no"};
      const Received received = harness.post(kChat, chat_body("Hi", stream));
      EXPECT_EQ(received.response.status, test.status);
      EXPECT_FALSE(received.streamed);
      EXPECT_EQ(body_json(received)["error"]["message"], "max_tokens: no");
      const auto& headers = received.response.headers;
      const bool retry = std::any_of(headers.begin(), headers.end(),
                                     [](const auto& each) { return each.first == "Retry-After"; });
      EXPECT_EQ(retry, test.retry);
    }
  }
}

// An exchange whose client has gone learns of it between two turns: thousands of events that wait
// for it are not thousands of turns before that.
TEST(ChatAnswer, AnEngineThatIsFarAheadHoldsNobodyUp) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("again and ", false); }, {},
                     tiny_frontend(), 1 << 16);
  Received received;
  const auto exchange = std::make_shared<RecordingExchange>(received);
  Json body = chat_body("Hi", true);
  body["max_tokens"] = 10'000;
  harness.api.handle({"POST", kChat, "", to_text(body), "", "", "id"}, exchange);
  ASSERT_TRUE(exchange->run());
  for (int i = 0; i < 5'000; ++i) harness.engine.step();
  EXPECT_EQ(exchange->posted(), 1u);
  ASSERT_TRUE(exchange->run_one());
  EXPECT_GT(events_of(received.stream).size(), 10u);
  EXPECT_LT(events_of(received.stream).size(), 200u);
  exchange->go_away();
  harness.engine.step();
  EXPECT_EQ(harness.engine.live(), 0);
  const std::string stream = received.stream;
  exchange->run();
  EXPECT_EQ(received.stream, stream);
}

TEST(ChatAnswer, ARequestIdIsInTheStreamsOfNobodyElse) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("Hi"); });
  const Json first = body_json(harness.post(kChat, chat_body("Hi")));
  const Json second = body_json(harness.post(kChat, chat_body("Hi")));
  EXPECT_NE(first["id"], second["id"]);
}

TEST(ChatAnswer, WhileDrainingNothingNewIsTaken) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("Hi"); });
  harness.api.drain();
  EXPECT_EQ(harness.post(kChat, chat_body("Hi")).response.status, 503);
  EXPECT_EQ(harness.get("/health").response.status, 503);
}

}  // namespace
}  // namespace replayssm::server
