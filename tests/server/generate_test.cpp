// SGLang's POST /generate: its forms of prompts, its answers whole and streamed.
#include "api_harness.h"

namespace replayssm::server {
namespace {

constexpr const char* kGenerate = "/generate";

Json generate_body(const Json& text, int tokens = 8) {
  return {{"text", text}, {"sampling_params", {{"max_new_tokens", tokens}, {"temperature", 0}}}};
}

std::vector<TokenId> ids_of(const std::string& text) {
  return tiny_frontend().tokenizer().encode(text);
}

TEST(Generate, AWholeAnswerIsTheTextAndWhatIsKnownOfIt) {
  ApiHarness harness(saying(" there was"));
  for (const Json& body :
       {generate_body("Once"), Json{{"input_ids", ids_of("Once")}, {"sampling_params", nullptr}}}) {
    const Json answer = body_json(harness.post(kGenerate, body));
    EXPECT_EQ(answer["text"], " there was");
    const Json& info = answer["meta_info"];
    EXPECT_EQ(info["finish_reason"], (Json{{"type", "stop"}}));
    EXPECT_EQ(info["prompt_tokens"], ids_of("Once").size());
    EXPECT_EQ(info["completion_tokens"], ids_of(" there was").size());
    EXPECT_TRUE(info.contains("cached_tokens"));
    EXPECT_TRUE(info.contains("e2e_latency"));
    EXPECT_EQ(harness.engine.requests().back().prompt, ids_of("Once"));
  }
  EXPECT_EQ(harness.engine.requests().back().max_tokens, 128);
}

TEST(Generate, ChunksHoldTheWholeTextSoFar) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("one two three", false); });
  Json body = generate_body("Count", static_cast<int>(ids_of("one two three").size()));
  body["stream"] = true;
  const Received received = harness.post(kGenerate, body);
  EXPECT_TRUE(received.stream.ends_with("data: [DONE]\n\n"));
  std::string text;
  int tokens = 0;
  Json finish;
  for (const Json& event : events_of(received.stream)) {
    EXPECT_TRUE(finish.is_null()) << "one end, in the last chunk";
    const std::string longer = event["text"];
    EXPECT_TRUE(longer.starts_with(text)) << longer;
    EXPECT_GE(event["meta_info"]["completion_tokens"], tokens);
    text = longer;
    tokens = event["meta_info"]["completion_tokens"];
    finish = event["meta_info"]["finish_reason"];
  }
  EXPECT_EQ(text, "one two three");
  EXPECT_EQ(finish["type"], "length");
  EXPECT_EQ(finish["length"], tokens);
}

TEST(Generate, SeveralPromptsAndChoicesAreAList) {
  ApiHarness harness([](const GenerationRequest& request, int choice) {
    return says((request.prompt == ids_of("a") ? "A" : "B") + std::to_string(choice));
  });
  Json body = generate_body(Json::array({"a", "b"}));
  body["sampling_params"]["n"] = 2;
  const Json answer = body_json(harness.post(kGenerate, body));
  ASSERT_EQ(answer.size(), 4u);
  const char* expected[] = {"A0", "A1", "B0", "B1"};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answer[i]["text"], expected[i]);
    EXPECT_EQ(answer[i]["index"], i);
  }
  EXPECT_TRUE(body_json(harness.post(kGenerate, generate_body(Json::array({"a"})))).is_array());
}

TEST(Generate, LogProbabilitiesAreOfTheOutput) {
  ApiHarness harness(saying(" there was"));
  Json body = generate_body("Once");
  body.update({{"return_logprob", true},
               {"top_logprobs_num", 2},
               {"return_text_in_logprobs", true},
               {"logprob_start_len", -1}});
  const Json info = body_json(harness.post(kGenerate, body))["meta_info"];
  EXPECT_EQ(harness.engine.requests().back().top_logprobs, 2);
  const auto ids = ids_of(" there was");
  ASSERT_EQ(info["output_token_logprobs"].size(), ids.size());
  ASSERT_EQ(info["output_top_logprobs"].size(), ids.size());
  EXPECT_TRUE(info["output_token_logprobs"][0][0].is_number());
  EXPECT_EQ(info["output_token_logprobs"][0][1], ids[0]);
  EXPECT_EQ(info["output_token_logprobs"][0][2],
            tiny_frontend().tokenizer().decode(std::span(ids).first(1)));
  EXPECT_EQ(info["output_top_logprobs"][0].size(), 2u);
}

TEST(Generate, EveryFieldIsHonouredOrRefusedByName) {
  const std::vector<std::pair<std::string, Json>> accepted = {
      {"min_new_tokens", 1},
      {"ignore_eos", true},
      {"top_p", 0.5},
      {"top_k", 5},
      {"min_p", 0.1},
      {"presence_penalty", 0.1},
      {"stop", "END"},
      {"stop_token_ids", {5}},
      {"repetition_penalty", 1.1},
      {"no_stop_trim", true},
      {"skip_special_tokens", false},
      {"frequency_penalty", 0.1},
      {"sampling_seed", 3},
      {"spaces_between_special_tokens", true}};
  for (const auto& [field, value] : accepted) {
    ApiHarness harness(saying("x"));
    Json body = generate_body("a");
    body["sampling_params"][field] = value;
    EXPECT_EQ(harness.post(kGenerate, body).response.status, 200) << field;
  }
  const std::vector<std::pair<std::string, Json>> refused = {
      {"max_new_tokens", 0}, {"min_new_tokens", 9}, {"regex", "a+"},        {"json_schema", "{}"},
      {"stop", 5},           {"temperature", -1},   {"no_such_field", true}};
  for (const auto& [field, value] : refused) {
    ApiHarness harness(saying("x"));
    Json body = generate_body("a");
    body["sampling_params"][field] = value;
    const Received received = harness.post(kGenerate, body);
    EXPECT_EQ(received.response.status, 400) << field;
    EXPECT_NE(body_json(received)["error"]["message"].get<std::string>().find(field),
              std::string::npos)
        << received.response.body;
  }
  const std::vector<std::pair<std::string, Json>> refused_in_body = {{"input_ids", {1}},
                                                                     {"text", {1, 2}},
                                                                     {"logprob_start_len", 0},
                                                                     {"image_data", "x"},
                                                                     {"lora_path", "x"},
                                                                     {"sampling_params", 3},
                                                                     {"return_hidden_states", true},
                                                                     {"no_such_field", true}};
  for (const auto& [field, value] : refused_in_body) {
    ApiHarness harness(saying("x"));
    Json body = generate_body("a");
    body[field] = value;
    const Received received = harness.post(kGenerate, body);
    EXPECT_EQ(received.response.status, 400) << field;
    EXPECT_NE(received.response.body.find(field), std::string::npos) << received.response.body;
  }
}

}  // namespace
}  // namespace replayssm::server
