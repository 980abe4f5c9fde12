// ggml-org/llama.cpp#24496, #13262, #11720: generation went on for clients that were gone.
// ggml-org/llama.cpp#14566: an error inside a stream had no shape.
#include "../server/http_harness.h"

namespace replayssm::server {
namespace {

// Cancellation reaches the engine between two steps; a scripted engine honours it in the next one.
TEST(Q01, AClosedConnectionEndsTheGenerationWithinTwoSteps) {
  for (const bool in_prefill : {false, true}) {
    ScriptedEngine engine([&](const GenerationRequest&, int) {
      Script script = says("again and ", false);
      script.prompt_steps = in_prefill ? 1000 : 1;
      return script;
    });
    Api api(engine, tiny_frontend(), tiny_served(), {}, [](std::function<void()> work) { work(); });
    Received received;
    const auto exchange = std::make_shared<RecordingExchange>(received);
    api.handle({"POST", kChat, "", chat_text("Hi", true, 4000), "", "", "id"}, exchange);
    exchange->run();
    for (int i = 0; i < 5; ++i) {
      engine.step();
      exchange->run();
    }
    ASSERT_EQ(engine.live(), 1);
    const std::int64_t before = engine.steps();
    exchange->go_away();
    for (int i = 0; i < 2; ++i) {
      engine.step();
      exchange->run();
    }
    EXPECT_EQ(engine.live(), 0);
    EXPECT_LE(engine.ended_at(0), before + 2);
  }
}

TEST(Q01, AClientThatLeavesBeforeItsTurnSubmitsNothing) {
  ScriptedEngine engine(talking());
  std::vector<std::function<void()>> later;
  Api api(engine, tiny_frontend(), tiny_served(), {},
          [&](std::function<void()> work) { later.push_back(std::move(work)); });
  Received received;
  const auto exchange = std::make_shared<RecordingExchange>(received);
  api.handle({"POST", kChat, "", chat_text("Hi"), "", "", "id"}, exchange);
  exchange->go_away();
  for (auto& work : later) work();
  exchange->run();
  EXPECT_TRUE(engine.requests().empty());
}

TEST(Q04, AnErrorInAStreamIsAnEventThenTheConnectionEnds) {
  HttpHarness harness([](const GenerationRequest&, int) {
    Script script = says("again and ", false);
    script.error_after = 5;
    return script;
  });
  HttpClient client = harness.client();
  const ClientResponse response = client.post(kChat, chat_text("Hi", true));
  EXPECT_EQ(response.status, 200);
  const std::vector<Json> events = events_of(response.body);
  EXPECT_EQ(events.back()["error"]["message"], "logits are not finite");
  EXPECT_TRUE(events.back()["error"].contains("type"));
  EXPECT_EQ(response.body.find("[DONE]"), std::string::npos);
  EXPECT_TRUE(client.ended());
}

TEST(Q04, AnErrorBeforeTheFirstByteHasItsStatus) {
  HttpHarness harness([](const GenerationRequest&, int) {
    Script script = says("x", false);
    script.error_after = 0;
    return script;
  });
  const ClientResponse whole = harness.client().post(kChat, chat_text("Hi"));
  EXPECT_EQ(whole.status, 500);
  EXPECT_NE(whole.body.find("logits are not finite"), std::string::npos);
}

}  // namespace
}  // namespace replayssm::server
