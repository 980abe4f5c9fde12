// Every request field of the contract: honoured, without effect, or refused by name.
#include "api_harness.h"

namespace replayssm::server {
namespace {

struct FieldCase {
  std::string field;  // a member of the body, or the param of the error where they differ
  Json value;
};

Json with(Json body, const FieldCase& test) {
  body[test.field] = test.value;
  return body;
}

Json completion_body() { return {{"model", "tiny"}, {"prompt", "Once upon"}, {"max_tokens", 3}}; }

const std::vector<FieldCase>& accepted_by_both() {
  static const std::vector<FieldCase> cases = {
      {"max_tokens", 3},
      {"min_tokens", 2},
      {"ignore_eos", true},
      {"temperature", 0.5},
      {"temperature", nullptr},
      {"top_p", 0.9},
      {"top_k", 20},
      {"top_k", -1},
      {"min_p", 0.1},
      {"seed", 7},
      {"seed", -7},
      {"seed", nullptr},
      {"presence_penalty", 0.5},
      {"frequency_penalty", -0.5},
      {"repetition_penalty", 1.0},
      {"logit_bias", {{"12", -100}, {"13", 1.5}}},
      {"n", 2},
      {"n", nullptr},
      {"best_of", 1},
      {"stop", "END"},
      {"stop", Json::array({"a", "b", "c", "d"})},
      {"stop", nullptr},
      {"stop", Json::array()},
      {"stop_token_ids", Json::array({5, 6})},
      {"include_stop_str_in_output", true},
      {"skip_special_tokens", false},
      {"stream", false},
      {"stream_options", nullptr},
      {"priority", 3},
      {"return_progress", true},
      // Without effect.
      {"user", "someone"},
      {"metadata", {{"a", "b"}}},
      {"store", true},
      {"service_tier", "auto"},
      {"safety_identifier", "x"},
      {"prompt_cache_key", "x"},
      // Neutral values of what is not implemented.
      {"use_beam_search", false},
      {"length_penalty", 1.0},
      {"prompt_logprobs", nullptr},
      {"no_such_field", nullptr},
  };
  return cases;
}

const std::vector<FieldCase>& refused_by_both() {
  static const std::vector<FieldCase> cases = {
      {"max_tokens", -1},
      {"max_tokens", "many"},
      {"max_tokens", 1.5},
      {"min_tokens", -1},
      {"min_tokens", 1000},  // beyond max_tokens
      {"ignore_eos", 1},
      {"temperature", -0.1},
      {"temperature", "hot"},
      {"top_p", 0},
      {"top_p", 1.01},
      {"top_k", -2},
      {"min_p", 1.5},
      {"seed", "7"},
      {"seed", 1.5},
      {"presence_penalty", 2.5},
      {"frequency_penalty", -2.5},
      {"repetition_penalty", 0},
      {"logit_bias", {{"12", 101}}},
      {"logit_bias", {{"x", 1}}},
      {"logit_bias", Json::array({1})},
      {"logit_bias", {{"999999", 1}}},
      {"n", 0},
      {"n", 129},
      {"best_of", 2},
      {"stop", Json::array({"a", "b", "c", "d", "e"})},
      {"stop", 5},
      {"stop", std::string(4097, 'x')},
      {"stop", ""},
      {"stop_token_ids", "5"},
      {"stop_token_ids", Json::array({-1})},
      {"stop_token_ids", Json::array({999999})},
      {"stream", "yes"},
      {"stream_options", {{"include_usage", true}}},  // without stream
      {"stream_options", 5},
      {"priority", "high"},
      {"use_beam_search", true},
      {"length_penalty", 0.5},
      {"guided_regex", "a+"},
      {"guided_choice", Json::array({"a", "b"})},
      {"guided_grammar", "x"},
      {"logits_processors", Json::array({"x"})},
      {"bad_words", Json::array({"x"})},
      {"truncate_prompt_tokens", 5},
      {"no_such_field", 1},
  };
  return cases;
}

void expect_accepted(const std::string& path, const Json& body) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("Hello there, friend"); });
  const Received received = harness.post(path, body);
  EXPECT_EQ(received.response.status, 200) << path << " " << body << received.response.body;
}

void expect_refused(const std::string& path, const Json& body, const std::string& field) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("Hello"); });
  const Received received = harness.post(path, body);
  EXPECT_EQ(received.response.status, 400) << path << " " << body;
  const Json error = body_json(received)["error"];
  EXPECT_EQ(error["type"], "invalid_request_error");
  const std::string param = error["param"].is_string() ? error["param"].get<std::string>() : "";
  EXPECT_TRUE(param.starts_with(field)) << param << " for " << field << ": " << error;
  EXPECT_NE(error["message"].get<std::string>().find(field), std::string::npos) << error;
  EXPECT_TRUE(harness.engine.requests().empty());
}

TEST(ContractFields, CommonFieldsAreAcceptedByChatAndCompletions) {
  for (const FieldCase& test : accepted_by_both()) {
    Json chat = chat_body("Hi");
    chat["max_tokens"] = 5;
    expect_accepted(kChat, with(chat, test));
    expect_accepted(kText, with(completion_body(), test));
  }
}

TEST(ContractFields, WrongCommonFieldsAreRefusedByNameAndReachNoEngine) {
  for (const FieldCase& test : refused_by_both()) {
    Json chat = chat_body("Hi");
    chat["max_tokens"] = 5;
    expect_refused(kChat, with(chat, test), test.field);
    expect_refused(kText, with(completion_body(), test), test.field);
  }
}

TEST(ContractFields, ChatFieldsAreAccepted) {
  const std::vector<FieldCase> cases = {
      {"max_completion_tokens", 4},
      {"logprobs", true},
      {"logprobs", false},
      {"logprobs", nullptr},
      {"top_logprobs", nullptr},
      {"tools", Json::array()},
      {"tools", nullptr},
      {"tool_choice", "auto"},
      {"tool_choice", "none"},
      {"parallel_tool_calls", true},
      {"response_format", {{"type", "text"}}},
      {"response_format", {{"type", "json_object"}}},
      {"response_format", {{"type", "json_object"}, {"schema", {{"type", "integer"}}}}},
      {"response_format",
       {{"type", "json_schema"},
        {"json_schema",
         {{"name", "n"},
          {"description", "d"},
          {"strict", nullptr},
          {"schema", {{"type", "integer"}}}}}}},
      {"chat_template_kwargs", {{"enable_thinking", false}}},
      {"reasoning_effort", "low"},
      {"reasoning_effort", "none"},
      {"add_generation_prompt", true},
      {"modalities", Json::array({"text"})},
      {"include_reasoning", true},
  };
  for (const FieldCase& test : cases) expect_accepted(kChat, with(chat_body("Hi"), test));
  Json body = chat_body("Hi");
  body["logprobs"] = true;
  body["top_logprobs"] = 20;
  expect_accepted(kChat, body);
}

TEST(ContractFields, WrongChatFieldsAreRefusedByName) {
  const std::vector<FieldCase> cases = {
      {"max_tokens", 0},
      {"max_completion_tokens", 0},
      {"logprobs", 5},
      {"top_logprobs", 21},
      {"top_logprobs", 3},  // without logprobs
      {"tools", "x"},
      {"tools", Json::array({{{"type", "retrieval"}}})},
      {"tools", Json::array({{{"type", "function"}, {"function", {{"name", ""}}}}})},
      {"tool_choice", "required"},  // without tools
      {"tool_choice", "sometimes"},
      {"parallel_tool_calls", "no"},
      {"response_format", {{"type", "xml"}}},
      {"response_format", {{"type", "json_schema"}}},
      {"response_format", {{"type", "text"}, {"schema", Json::object()}}},
      {"response_format", {{"type", "json_object"}, {"schema", 5}}},
      {"response_format", {{"type", "json_object"}, {"bogus", 5}}},
      {"response_format",
       {{"type", "json_schema"}, {"json_schema", {{"schema", Json::object()}, {"name", 5}}}}},
      {"response_format",
       {{"type", "json_schema"}, {"json_schema", {{"schema", Json::object()}, {"strict", "x"}}}}},
      {"response_format",
       {{"type", "json_schema"}, {"json_schema", {{"schema", Json::object()}, {"bogus", 1}}}}},
      {"tools", Json::array({{{"type", "function"},
                              {"strict", true},  // belongs into `function`
                              {"function", {{"name", "f"}}}}})},
      {"chat_template_kwargs", {{"messages", Json::array()}}},
      {"chat_template_kwargs", 5},
      {"reasoning_effort", "a lot"},
      {"echo", true},
      {"functions", Json::array({{{"name", "f"}}})},
      {"function_call", "auto"},
      {"modalities", Json::array({"text", "audio"})},
      {"audio", {{"voice", "x"}}},
      {"prediction", {{"type", "content"}}},
      {"web_search_options", Json::object()},
      {"continue_final_message", true},
      {"chat_template", "x"},
      {"documents", Json::array({"x"})},
      {"messages", Json::array()},
      {"messages", "Hi"},
      {"messages", Json::array({"Hi"})},
      {"messages", Json::array({{{"role", "wizard"}, {"content", "Hi"}}})},
      {"messages", Json::array({{{"role", "user"}}})},
      {"messages", Json::array({{{"role", "user"}, {"content", 5}}})},
  };
  for (const FieldCase& test : cases)
    expect_refused(kChat, with(chat_body("Hi"), test), test.field);
}

TEST(ContractFields, ImagePartsAreRefusedByTheirPlace) {
  const Json image = {{"type", "image_url"}, {"image_url", {{"url", "data:,"}}}};
  const Json text = {{"type", "text"}, {"text", "What is this?"}};
  Json body = chat_body("Hi");
  body["messages"][0]["content"] = Json::array({text, image});
  expect_refused(kChat, body, "messages[0].content[1].type");
}

TEST(ContractFields, TextPartsReadAsOneText) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("Hi"); });
  Json parts = chat_body("");
  parts["messages"][0]["content"] = Json::array(
      {{{"type", "text"}, {"text", "Count from "}}, {{"type", "text"}, {"text", "7 to 12"}}});
  ASSERT_EQ(harness.post(kChat, parts).response.status, 200);
  ASSERT_EQ(harness.post(kChat, chat_body("Count from 7 to 12")).response.status, 200);
  const auto requests = harness.engine.requests();
  EXPECT_EQ(requests[0].prompt, requests[1].prompt);
}

TEST(ContractFields, CompletionFieldsAreAccepted) {
  const std::vector<FieldCase> cases = {
      {"prompt", Json::array({"a b", "c d"})},
      {"prompt", Json::array({5, 6, 7})},
      {"prompt", Json::array({Json::array({5, 6}), Json::array({7})})},
      {"echo", true},
      {"logprobs", 5},
      {"logprobs", nullptr},
      {"suffix", nullptr},
      {"suffix", ""},
      {"parse_special", true},
      {"add_special_tokens", true},
  };
  for (const FieldCase& test : cases) expect_accepted(kText, with(completion_body(), test));
}

TEST(ContractFields, WrongCompletionFieldsAreRefusedByName) {
  const std::vector<FieldCase> cases = {
      {"prompt", nullptr},
      {"prompt", 5},
      {"prompt", ""},
      {"prompt", Json::array()},
      {"prompt", Json::array({"a", 5})},
      {"prompt", Json::array({-1})},
      {"prompt", Json::array({1.5})},
      {"echo", "yes"},
      {"logprobs", 21},
      {"logprobs", true},
      {"suffix", "the end"},
      {"max_tokens", 0},  // without echo
      {"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})},
  };
  for (const FieldCase& test : cases)
    expect_refused(kText, with(completion_body(), test), test.field);
}

TEST(ContractFields, ValuesReachTheEngine) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("Hello"); });
  Json body = chat_body("Hi");
  body.update({{"max_tokens", 9},
               {"max_completion_tokens", 8},  // wins
               {"min_tokens", 2},
               {"ignore_eos", true},
               {"temperature", 0.5},
               {"top_p", 0.75},
               {"top_k", 20},
               {"min_p", 0.125},
               {"seed", 7},
               {"presence_penalty", 0.5},
               {"frequency_penalty", -0.5},
               {"repetition_penalty", 1.25},
               {"logit_bias", {{"12", -100}}},
               {"n", 2},
               {"stop_token_ids", Json::array({5})},
               {"priority", 3},
               {"logprobs", true},
               {"top_logprobs", 4}});
  ASSERT_EQ(harness.post(kChat, body).response.status, 200);
  const GenerationRequest request = harness.engine.requests().at(0);
  EXPECT_EQ(request.max_tokens, 8);
  EXPECT_EQ(request.min_tokens, 2);
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_p, 0.75);
  EXPECT_EQ(request.sampling.top_k, 20);
  EXPECT_EQ(request.sampling.min_p, 0.125);
  EXPECT_EQ(request.sampling.seed, 7u);
  EXPECT_EQ(request.sampling.presence_penalty, 0.5);
  EXPECT_EQ(request.sampling.frequency_penalty, -0.5);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.25);
  EXPECT_EQ(request.logit_bias, (std::vector<std::pair<TokenId, float>>{{12, -100.0f}}));
  EXPECT_EQ(request.choices, 2);
  EXPECT_EQ(request.stop_token_ids, std::vector<TokenId>{5});
  EXPECT_EQ(request.priority, 3);
  EXPECT_EQ(request.top_logprobs, 4);
}

TEST(ContractFields, WithoutALimitTheContextIsTheLimit) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("Hello"); });
  ASSERT_EQ(harness.post(kChat, chat_body("Hi")).response.status, 200);
  const GenerationRequest request = harness.engine.requests().at(0);
  EXPECT_EQ(request.max_tokens, 4096 - static_cast<int>(request.prompt.size()));
}

TEST(ContractFields, MoreThanTheContextHoldsIsRefusedWithItsCode) {
  ApiHarness harness({}, {}, tiny_frontend(), 64);
  Json body = chat_body("Hi");
  body["max_tokens"] = 64;
  Json error = body_json(harness.post(kChat, body))["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["param"], "max_tokens");
  std::string words;
  for (int i = 0; i < 100; ++i) words += "word ";
  const Received received = harness.post(kChat, chat_body(words));
  EXPECT_EQ(received.response.status, 400);
  error = body_json(received)["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded");
}

TEST(ContractFields, TheModelsBranchPointsAreSystemAndMessages) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("Hello"); });
  Json body = chat_body("Hi");
  body["messages"].insert(body["messages"].begin(),
                          Json{{"role", "system"}, {"content", "Be brief."}});
  ASSERT_EQ(harness.post(kChat, body).response.status, 200);
  const GenerationRequest request = harness.engine.requests().at(0);
  const Tokenizer& tokenizer = tiny_frontend().tokenizer();
  const std::string system = "<|im_start|>system\nBe brief.<|im_end|>\n";
  const auto count = [&](const std::string& text) {
    return static_cast<int>(tokenizer.encode_with_added_tokens(text).size());
  };
  EXPECT_EQ(request.branch_points,
            (std::vector<int>{count(system), count(system + "<|im_start|>user\nHi<|im_end|>\n")}));
}

}  // namespace
}  // namespace replayssm::server
