// A server with drafts answers what one without does; what the drafts did is reported.
#include "real_server.h"

namespace replayssm::server {
namespace {

std::unique_ptr<RealServer> deterministic_server(SpeculativeAlgorithm algorithm) {
  ServiceOptions options = real_options();
  options.engine.deterministic = true;
  options.engine.speculation.algorithm = algorithm;
  return start_real_server(options);
}

Json body_of(std::string_view message, const Json& more) {
  Json body = chat_body(message);
  body["temperature"] = 0;
  body["max_tokens"] = 60;
  body.update(more);
  return body;
}

TEST(DraftedEngine, AnswersAreThoseOfAServerWithoutDrafts) {
  const Json schema = {
      {"type", "object"},
      {"properties", {{"n", {{"type", "integer"}, {"minimum", 3}, {"maximum", 500}}}}},
      {"required", Json::array({"n"})},
      {"additionalProperties", false}};
  const std::vector<Json> bodies{
      body_of("Count from 38 to 61.", Json::object()),
      body_of("Count from 38 to 61.", {{"stop", "45, 4"}}),
      body_of("Count from 38 to 61.", {{"max_tokens", 17}}),
      body_of("Count from 38 to 61.", {{"logprobs", true}, {"top_logprobs", 3}}),
      body_of("Tell me about the sea", {{"temperature", 0.8}, {"seed", 4}, {"n", 2}}),
      body_of("Tell me about the sea",
              {{"temperature", 1}, {"seed", 4}, {"frequency_penalty", 0.5}, {"top_p", 0.9}}),
      body_of("Tell me about the sea",
              {{"response_format",
                {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", schema}}}}}})};
  const auto plain = deterministic_server(SpeculativeAlgorithm::none);
  std::vector<Json> expected;
  for (const Json& body : bodies) expected.push_back(plain->chat(body)["choices"]);
  for (const SpeculativeAlgorithm algorithm :
       {SpeculativeAlgorithm::ngram, SpeculativeAlgorithm::mtp}) {
    const auto drafted = deterministic_server(algorithm);
    for (const char* which : {"cold", "from the cache"}) {
      for (std::size_t i = 0; i < bodies.size(); ++i) {
        EXPECT_EQ(drafted->chat(bodies[i])["choices"], expected[i])
            << name_of(algorithm) << ", " << which << ": " << bodies[i];
      }
    }
  }
}

TEST(DraftedEngine, UsageMetricsAndStateCountDrafts) {
  const auto server = deterministic_server(SpeculativeAlgorithm::mtp);
  const Json answer = server->chat(body_of("Count from 38 to 61.", Json::object()));
  const Json& details = answer["usage"]["completion_tokens_details"];
  const int accepted = details["accepted_prediction_tokens"];
  const int rejected = details["rejected_prediction_tokens"];
  EXPECT_GT(accepted, 0);
  EXPECT_EQ(answer["timings"]["draft_n"], accepted + rejected);
  EXPECT_EQ(answer["timings"]["draft_n_accepted"], accepted);
  const Json state = parse_json(server->client().get("/state").body).value();
  const Json& counted = state["counters"]["speculation"];
  int drafts = 0;
  int drafts_accepted = 0;
  for (const int at_place : counted["drafts"]) drafts += at_place;
  for (const int at_place : counted["drafts_accepted"]) drafts_accepted += at_place;
  EXPECT_EQ(drafts, accepted + rejected);
  EXPECT_EQ(drafts_accepted, accepted);
  // The first token comes out of the prompt, the others out of windows or plain steps.
  EXPECT_GE(counted["windows"].get<int>() + accepted + 1,
            answer["usage"]["completion_tokens"].get<int>() - 1);
  const std::string metrics = server->client().get("/metrics").body;
  EXPECT_NE(metrics.find("spec_decode_num_accepted_tokens_per_pos_total"), std::string::npos);
}

}  // namespace
}  // namespace replayssm::server
