// The whole way: sockets, text, engine, model.
#include "real_server.h"
#include "resident_memory.h"
#include "rounds.h"

namespace replayssm::server {
namespace {

Json greedy_chat(std::string_view message, int max_tokens = 24) {
  Json body = chat_body(message);
  body["temperature"] = 0;
  body["max_tokens"] = max_tokens;
  return body;
}

TEST(RealEngine, AnswersAndSpeaksTheSameStreamed) {
  const Json answer = real_server().chat(greedy_chat("What is 345 + 278?"));
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "345 + 278 = 623");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  Json body = greedy_chat("What is 345 + 278?");
  body["stream"] = true;
  const ClientResponse stream = real_server().client().post("/v1/chat/completions", to_text(body));
  EXPECT_EQ(assemble(stream.body).content, "345 + 278 = 623");
}

TEST(RealEngine, ARepeatedPromptIsReusedUpToItsLastToken) {
  const Json body = greedy_chat("Count from 7 to 12");
  const Json first = real_server().chat(body);
  const Json second = real_server().chat(body);
  EXPECT_EQ(first["choices"], second["choices"]);
  EXPECT_EQ(second["usage"]["prompt_tokens_details"]["cached_tokens"],
            second["usage"]["prompt_tokens"].get<int>() - 1);
}

TEST(RealEngine, TheSecondTurnReusesTheFirst) {
  Json body = greedy_chat("Remember this codeword: garden-854");
  const Json first = real_server().chat(body);
  body["messages"].push_back(first["choices"][0]["message"]);
  body["messages"].push_back({{"role", "user"}, {"content", "What is the codeword?"}});
  const Json second = real_server().chat(body);
  EXPECT_EQ(second["choices"][0]["message"]["content"], "garden-854");
  const Json& usage = first["usage"];
  EXPECT_GE(second["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>(),
            usage["prompt_tokens"].get<int>() + usage["completion_tokens"].get<int>() - 1);
}

TEST(RealEngine, ASchemaHoldsWhateverTheModelWouldSay) {
  Json body = greedy_chat("Tell me about the sea", 200);
  body["response_format"] = {{"type", "json_schema"},
                             {"json_schema",
                              {{"name", "x"},
                               {"schema",
                                {{"type", "object"},
                                 {"properties",
                                  {{"n", {{"type", "integer"}, {"minimum", 3}, {"maximum", 5}}},
                                   {"ok", {{"type", "boolean"}}}}},
                                 {"required", Json::array({"n", "ok"})},
                                 {"additionalProperties", false}}}}}};
  const std::string content = real_server().chat(body)["choices"][0]["message"]["content"];
  const Json value = parse_json(content).value();
  EXPECT_GE(value["n"], 3);
  EXPECT_LE(value["n"], 5);
  EXPECT_TRUE(value["ok"].is_boolean());
}

TEST(RealEngine, LikelihoodsOfAPromptAreWhatSamplingSawIt) {
  const Json said = real_server().completion({{"prompt", "It was a bright morning"},
                                              {"max_tokens", 6},
                                              {"temperature", 0},
                                              {"logprobs", 1}});
  const std::string text =
      "It was a bright morning" + said["choices"][0]["text"].get<std::string>();
  const Json scored = real_server().completion(
      {{"prompt", text}, {"max_tokens", 1}, {"echo", true}, {"logprobs", 1}, {"temperature", 0}});
  const Json& spoken = said["choices"][0]["logprobs"]["token_logprobs"];
  const Json& read = scored["choices"][0]["logprobs"]["token_logprobs"];
  EXPECT_TRUE(read[0].is_null());
  // One more token was generated behind the prompt.
  const std::size_t first = read.size() - 1 - spoken.size();
  for (std::size_t i = 0; i < spoken.size(); ++i) {
    // bf16 activations in steps of other shapes: sums in another order.
    EXPECT_NEAR(read[first + i].get<double>(), spoken[i].get<double>(), 0.05) << i;
  }
}

TEST(RealEngine, EightChoicesOfOnePrompt) {
  Json body = chat_body("It was a dark night");
  body.update({{"n", 4}, {"max_tokens", 8}, {"temperature", 1.0}, {"seed", 5}});
  const Json first = real_server().chat(body);
  ASSERT_EQ(first["choices"].size(), 4u);
  EXPECT_EQ(real_server().chat(body)["choices"], first["choices"]);
}

TEST(RealEngine, AThousandStreamsAtOnceAreServedInBoundedMemory) {
  const int count = tests::kSanitized ? 50 : 1000;
  ServiceOptions options = real_options();
  options.engine.max_running_requests = 24;
  options.engine.context_length = 128;
  const auto server = start_real_server(options);
  const std::int64_t before = resident_bytes();
  std::vector<HttpClient> clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(server->client());
    Json body = chat_body("Count from " + std::to_string(i % 40) + " to 90", true);
    body.update(
        {{"max_tokens", 3}, {"ignore_eos", true}, {"stream_options", {{"include_usage", true}}}});
    ASSERT_TRUE(clients.back().send(HttpClient::request("POST", kChat, to_text(body))));
  }
  for (HttpClient& client : clients) {
    const ClientResponse response = client.read_response();
    ASSERT_TRUE(response.complete);
    const Assembled all = assemble(response.body);
    EXPECT_EQ(all.finish_reasons, std::vector<std::string>{"length"});
    EXPECT_EQ(all.usage["completion_tokens"], 3);
  }
  // The pools fill up to their plan; a connection costs some tens of KiB.
  if (!tests::kSanitized) {
    EXPECT_LT(resident_bytes() - before,
              server->service->plan().used + std::int64_t{count} * (256 << 10));
  }
  clients.clear();
  EXPECT_TRUE(eventually([&] { return server->http->connections() == 0; }));
  EXPECT_EQ(server->http->open_exchanges(), 0);
  EXPECT_TRUE(server->service->idle());
  server->service->flush_cache();
  const EngineState state = server->service->state();
  EXPECT_EQ(state.slots.used + state.rows.used + state.pages.used, 0);
}

TEST(RealEngine, HealthGenerateGenerates) {
  const ClientResponse response = real_server().client().get("/health_generate");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(parse_json(response.body).value()["generated_tokens"], 1);
}

TEST(RealEngine, StateAndMetricsShowTheRings) {
  real_server().chat(greedy_chat("Count from 3 to 30", 60));
  const Json state = parse_json(real_server().client().get("/state").body).value();
  EXPECT_GT(state["counters"]["folds"]["due"], 0);
  EXPECT_GT(state["slots"]["total"], 0);
  const std::string metrics = real_server().client().get("/metrics").body;
  EXPECT_NE(metrics.find("replayssm:ring_occupancy_bucket"), std::string::npos);
  EXPECT_NE(metrics.find("replayssm:state_copies_total{model_name=\"tiny\"} 0"), std::string::npos);
}

}  // namespace
}  // namespace replayssm::server
