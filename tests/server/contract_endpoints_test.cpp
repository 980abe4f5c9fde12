// Every endpoint of the contract: what it answers, with and without a key.
#include <set>

#include "api_harness.h"
#include "server/routes.h"

namespace replayssm::server {
namespace {

struct EndpointCase {
  std::string method;
  std::string path;
  Json body;  // null: none
  int status;
  std::string expected;  // a JSON pointer that must be there; empty: not looked at
};

std::vector<EndpointCase> cases() {
  const Json chat = chat_body("Hi");
  return {
      {"GET", "/", nullptr, 200, ""},
      {"GET", "/health", nullptr, 200, "/status"},
      {"GET", "/ready", nullptr, 200, "/status"},
      {"GET", "/health_generate", nullptr, 200, "/generated_tokens"},
      {"GET", "/metrics", nullptr, 200, ""},
      {"GET", "/state", nullptr, 200, "/memory_plan/lines"},
      {"GET", "/get_server_info", nullptr, 200, "/internal_states/0"},
      {"GET", "/server_info", nullptr, 200, "/version"},
      {"GET", "/version", nullptr, 200, "/version"},
      {"POST", "/flush_cache", nullptr, 200, "/flushed_entries"},
      {"GET", "/flush_cache", nullptr, 200, "/flushed_entries"},
      {"GET", "/v1/models", nullptr, 200, "/data/0/id"},
      {"GET", "/v1/models/tiny", nullptr, 200, "/id"},
      {"GET", "/v1/models/other", nullptr, 404, "/error/message"},
      {"POST", "/v1/chat/completions", chat, 200, "/choices/0/message"},
      {"POST", "/v1/completions", {{"prompt", "a"}}, 200, "/choices/0/text"},
      {"POST", "/tokenize", {{"prompt", "a b"}, {"add_special_tokens", false}}, 200, "/tokens/0"},
      {"POST", "/tokenize", chat, 200, "/count"},
      {"POST", "/detokenize", {{"tokens", Json::array({5, 6})}}, 200, "/prompt"},
      {"POST", "/detokenize", Json::object(), 400, "/error/param"},
      {"GET", "/tokenizer_info", nullptr, 200, "/eos_token"},
      {"POST", "/apply-template", chat, 200, "/prompt"},
      {"POST", "/v1/responses", Json::object(), 501, "/error/message"},
      {"POST", "/v1/messages", Json::object(), 501, "/error/message"},
      {"POST", "/v1/messages/count_tokens", Json::object(), 501, "/error/message"},
      {"POST", "/v1/embeddings", Json::object(), 501, "/error/message"},
      {"POST", "/generate", {{"text", "a"}}, 200, "/meta_info/finish_reason/type"},
      {"POST", "/generate", Json::object(), 400, "/error/param"},
      {"POST", "/start_profile", nullptr, 501, "/error/message"},
      {"POST", "/stop_profile", nullptr, 501, "/error/message"},
      {"GET", "/props", nullptr, 501, "/error/message"},
      {"GET", "/slots", nullptr, 501, "/error/message"},
      {"GET", "/no/such/path", nullptr, 404, "/error/message"},
      {"GET", "/v1/models/", nullptr, 404, "/error/message"},
      {"DELETE", "/v1/models", nullptr, 405, "/error/message"},
      {"GET", "/v1/chat/completions", nullptr, 405, "/error/message"},
      {"OPTIONS", "/v1/chat/completions", nullptr, 204, ""},
      {"OPTIONS", "/nowhere", nullptr, 404, ""},
      {"HEAD", "/health", nullptr, 200, ""},
  };
}

HttpRequest request_of(const EndpointCase& test) {
  return {test.method, test.path, "", test.body.is_null() ? "" : to_text(test.body), "", "", "id"};
}

TEST(Endpoints, EachAnswersAsDocumented) {
  for (const EndpointCase& test : cases()) {
    ApiHarness harness([](const GenerationRequest&, int) { return says("Hi"); });
    const Received received = harness.send(request_of(test));
    EXPECT_EQ(received.response.status, test.status)
        << test.method << " " << test.path << " " << received.response.body;
    if (test.expected.empty()) continue;
    const Json body = body_json(received);
    EXPECT_TRUE(body.contains(Json::json_pointer(test.expected))) << test.path << " " << body;
    if (test.status < 400) continue;
    for (const char* member : {"message", "type", "param", "code"}) {
      EXPECT_TRUE(body["error"].contains(member)) << test.path;
    }
  }
}

// No route without a case above.
TEST(Endpoints, TheTableIsComplete) {
  std::set<std::string> tested;
  for (const EndpointCase& test : cases()) {
    const RouteMatch match = find_route(test.method, test.path);
    if (match.route != nullptr)
      tested.insert(std::string(match.route->method) + std::string(match.route->path));
  }
  for (const Route& route : routes()) {
    EXPECT_TRUE(tested.contains(std::string(route.method) + std::string(route.path))) << route.path;
  }
}

TEST(Endpoints, AKeyIsAskedForEverywhereButOnHealthAndThePage) {
  const std::set<std::string> open = {"/", "/health", "/ready"};
  for (const EndpointCase& test : cases()) {
    if (test.status == 404 || test.status == 405 || test.method == "OPTIONS") continue;
    ApiHarness harness([](const GenerationRequest&, int) { return says("Hi"); },
                       ApiOptions{"secret", ""});
    for (const char* authorization : {"", "Bearer", "Bearer wrong!", "Bearer secrets", "secret"}) {
      HttpRequest request = request_of(test);
      request.authorization = authorization;
      const Received received = harness.send(std::move(request));
      EXPECT_EQ(received.response.status, open.contains(test.path) ? 200 : 401) << test.path;
    }
    HttpRequest request = request_of(test);
    request.authorization = "bEARER secret";
    EXPECT_EQ(harness.send(std::move(request)).response.status, test.status) << test.path;
  }
}

TEST(Endpoints, AModelThatIsNotServedIsNotFound) {
  ApiHarness harness;
  Json body = chat_body("Hi");
  body["model"] = "gpt-x";
  const Received received = harness.post("/v1/chat/completions", body);
  EXPECT_EQ(received.response.status, 404);
  EXPECT_EQ(body_json(received)["error"]["code"], "model_not_found");
  EXPECT_EQ(harness.post("/v1/completions", {{"model", "x"}, {"prompt", "a"}}).response.status,
            404);
  EXPECT_EQ(harness.get("/v1/models/t%69ny").response.status, 200);
}

TEST(Endpoints, TokensComeBackAsTheTextTheyCameFrom) {
  ApiHarness harness;
  const std::string text = "caf\xC3\xA9 <|im_end|> \xF0\x9F\x98\x80";
  const Json tokens =
      body_json(harness.post("/tokenize", {{"prompt", text}, {"return_token_strs", true}}));
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_EQ(tokens["count"], tokens["token_strs"].size());
  EXPECT_EQ(body_json(harness.post("/detokenize", {{"tokens", tokens["tokens"]}}))["prompt"], text);
}

TEST(Endpoints, TheTemplateAppliedIsThePromptThatIsEvaluated) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("Hi"); });
  harness.post("/v1/chat/completions", chat_body("Hi"));
  const Json tokens = body_json(harness.post("/tokenize", chat_body("Hi")))["tokens"];
  EXPECT_EQ(Json(harness.engine.requests().at(0).prompt), tokens);
  const Json prompt = body_json(harness.post("/apply-template", chat_body("Hi")))["prompt"];
  EXPECT_EQ(prompt, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(Endpoints, MetricsHaveTheNamesOfTheContract) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("Hi"); });
  harness.post("/v1/chat/completions", chat_body("Hi"));
  const std::string text = harness.get("/metrics").response.body;
  const char* names[] = {"num_requests_running",
                         "num_requests_waiting",
                         "kv_cache_usage_perc",
                         "prefix_cache_queries_total",
                         "prefix_cache_hits_total",
                         "num_preemptions_total",
                         "prompt_tokens_total",
                         "generation_tokens_total",
                         "iteration_tokens_total",
                         "request_success_total",
                         "cache_config_info",
                         "engine_healthy",
                         "time_to_first_token_seconds",
                         "inter_token_latency_seconds",
                         "e2e_request_latency_seconds",
                         "request_queue_time_seconds",
                         "request_prefill_time_seconds",
                         "request_decode_time_seconds",
                         "request_prompt_tokens",
                         "request_generation_tokens",
                         "request_params_n",
                         "request_params_max_tokens",
                         "ring_folds_total",
                         "ring_occupancy",
                         "state_slots_used",
                         "state_slots_reserved",
                         "state_slots_total",
                         "state_copies_total",
                         "checkpoint_total",
                         "prefix_tokens_lost_total",
                         "state_bytes_read_total",
                         "state_bytes_written_total",
                         "nonfinite_logits_total"};
  for (const char* name : names) {
    EXPECT_NE(text.find(std::string("# TYPE replayssm:") + name + " "), std::string::npos) << name;
  }
  EXPECT_NE(text.find("replayssm:ring_folds_total{model_name=\"tiny\",reason=\"due\"} 0"),
            std::string::npos);
  EXPECT_NE(text.find("replayssm:request_params_n_count{model_name=\"tiny\"} 1"),
            std::string::npos);
}

TEST(Endpoints, AFailedEngineIsUnhealthy) {
  ApiHarness harness;
  harness.engine.failed = Error{"three steps failed"};
  EXPECT_EQ(harness.get("/health").response.status, 503);
  EXPECT_NE(harness.get("/metrics").response.body.find("engine_healthy{model_name=\"tiny\"} 0"),
            std::string::npos);
}

}  // namespace
}  // namespace replayssm::server
