// Tools: calls found in the model's format, and calls that the grammar makes sure of.
#include "api_harness.h"

namespace replayssm::server {
namespace {

Json weather_tool() {
  return {{"type", "function"},
          {"function",
           {{"name", "get_weather"},
            {"parameters",
             {{"type", "object"},
              {"properties", {{"city", {{"type", "string"}}}, {"days", {{"type", "integer"}}}}},
              {"required", Json::array({"city"})}}}}}};
}

Json tool_body(const Json& choice = "auto") {
  Json body = chat_body("How is the weather in Oslo?");
  body["tools"] = Json::array({weather_tool()});
  body["tool_choice"] = choice;
  return body;
}

constexpr const char* kCall =
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3"
    "\n</parameter>\n</function>\n</tool_call>";

void expect_weather_call(const Json& call) {
  EXPECT_TRUE(call["id"].get<std::string>().starts_with("call_")) << call;
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["function"]["name"], "get_weather");
  EXPECT_EQ(parse_json(call["function"]["arguments"].get<std::string>()).value(),
            (Json{{"city", "Oslo"}, {"days", 3}}));
}

TEST(ToolChoice, ACallIsTheSameStreamedAndWhole) {
  ApiHarness harness(saying(kCall));
  const Json choice = body_json(harness.post(kChat, tool_body()))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
  expect_weather_call(choice["message"]["tool_calls"][0]);
  Json body = tool_body();
  body["stream"] = true;
  const Assembled all = assemble(harness.post(kChat, body).stream);
  ASSERT_EQ(all.tool_calls.size(), 1u);
  expect_weather_call(all.tool_calls[0]);
  EXPECT_EQ(all.content, "");
  EXPECT_EQ(all.finish_reasons, std::vector<std::string>{"tool_calls"});
}

TEST(ToolChoice, NoneLeavesToolsOutOfThePromptAndFindsNoCalls) {
  ApiHarness harness(saying(kCall));
  const Json message = body_json(harness.post(kChat, tool_body("none")))["choices"][0]["message"];
  EXPECT_FALSE(message.contains("tool_calls"));
  EXPECT_EQ(message["content"], kCall);
  Json plain = tool_body("none");
  plain.erase("tools");
  plain.erase("tool_choice");
  harness.post(kChat, plain);
  const auto requests = harness.engine.requests();
  EXPECT_EQ(requests[0].prompt, requests[1].prompt);
}

TEST(ToolChoice, WithoutParallelCallsTheFirstCallIsTheLast) {
  const std::string two = std::string(kCall) + "\n" + kCall;
  ApiHarness harness(saying(two));
  Json body = tool_body();
  EXPECT_EQ(body_json(harness.post(kChat, body))["choices"][0]["message"]["tool_calls"].size(), 2u);
  body["parallel_tool_calls"] = false;
  const Json answer = body_json(harness.post(kChat, body));
  EXPECT_EQ(answer["choices"][0]["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_LE(answer["usage"]["completion_tokens"], says(kCall).tokens.size());
}

TEST(ToolChoice, ANamedToolsArgumentsAreTheAnswer) {
  const Json choice = {{"type", "function"}, {"function", {{"name", "get_weather"}}}};
  ApiHarness harness(saying(R"({"city": "Oslo", "days": 3})"));
  for (const bool stream : {false, true}) {
    Json body = tool_body(choice);
    body["stream"] = stream;
    const Received received = harness.post(kChat, body);
    const Json calls = stream ? assemble(received.stream).tool_calls
                              : body_json(received)["choices"][0]["message"]["tool_calls"];
    ASSERT_EQ(calls.size(), 1u);
    expect_weather_call(calls[0]);
    EXPECT_NE(harness.engine.requests().back().constraint, nullptr);
  }
}

// Arguments that a stop string cuts off would be no JSON.
TEST(ToolChoice, StopStringsDoNotCutForcedArguments) {
  const Json choice = {{"type", "function"}, {"function", {{"name", "get_weather"}}}};
  ApiHarness harness(saying(R"({"city": "Oslo", "days": 3})"));
  Json body = tool_body(choice);
  body["stop"] = "Os";
  const Json answer = body_json(harness.post(kChat, body))["choices"][0];
  ASSERT_EQ(answer["message"]["tool_calls"].size(), 1u);
  expect_weather_call(answer["message"]["tool_calls"][0]);
  EXPECT_EQ(answer["finish_reason"], "tool_calls");
}

TEST(ToolChoice, RequiredIsAListOfCalls) {
  ApiHarness harness(
      saying(R"([{"name": "get_weather", "arguments": {"city": "Oslo", "days": 3}}])"));
  const Json choice = body_json(harness.post(kChat, tool_body("required")))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  expect_weather_call(choice["message"]["tool_calls"][0]);
}

// The constraint accepts exactly such lists: walked over the text as the sampler would.
TEST(ToolChoice, RequiredHoldsTheModelToTheToolsAndTheirParameters) {
  ApiHarness harness(saying("[]"));
  harness.post(kChat, tool_body("required"));
  const auto constraint = harness.engine.requests().at(0).constraint;
  ASSERT_NE(constraint, nullptr);
  const auto accepts = [&](const std::string& text) {
    grammar::ReasoningGate gate = *constraint;
    for (const TokenId token : tiny_frontend().tokenizer().encode(text)) {
      if (!gate.accept(token)) return false;
    }
    return gate.finished();
  };
  EXPECT_TRUE(accepts(R"([{"name": "get_weather", "arguments": {"city": "Oslo"}}])"));
  EXPECT_FALSE(accepts(R"([{"name": "get_time", "arguments": {"city": "Oslo"}}])"));
  EXPECT_FALSE(accepts(R"([{"name": "get_weather", "arguments": {"days": 3}}])"));
  EXPECT_FALSE(accepts("[]"));
}

// A mask has one bit for each id of the model, which may be fewer than the tokenizer's.
TEST(ToolChoice, NoConstraintReachesBehindTheEmbedding) {
  FrontendOptions options;
  options.model_path = tiny_model();
  options.chat_template = source_dir() / "tests/data/server/thinking.jinja";
  ModelConfig config = load_config(tiny_model()).value();
  config.vocab_size = 300;
  const auto frontend = Frontend::load(options, config).value();
  ASSERT_GT(frontend->tokenizer().size(), 320);
  const Json tools = {
      {{"type", "function"},
       {"function", {{"name", "now"}, {"strict", true}, {"parameters", {{"type", "object"}}}}}}};
  for (const bool in_reasoning : {false, true}) {
    for (const auto& made :
         {frontend->constrain({OutputFormat::Kind::json_object, {}, "response_format"},
                              in_reasoning),
          frontend->constrain_calls(tools, in_reasoning)}) {
      const auto gate = std::get<Frontend::Constraint>(made);
      ASSERT_NE(gate, nullptr);
      EXPECT_EQ(gate->vocabulary().vocabulary_size(), 300u);
      std::vector<std::uint32_t> words(40, 0xabcdef01u);
      EXPECT_TRUE(gate->fill_mask(std::span(words).first(10)).ok());
      EXPECT_EQ(std::count(words.begin() + 10, words.end(), 0xabcdef01u), 30);
    }
  }
}

// Free text, and calls in the model's own format that fit: walked over the text as the sampler
// would.
TEST(ToolChoice, WithAStrictToolAnAutomaticCallIsHeldToItsParameters) {
  ApiHarness harness(saying("Hello"));
  harness.post(kChat, tool_body());
  EXPECT_EQ(harness.engine.requests().back().constraint, nullptr) << "not asked for";
  Json body = tool_body();
  body["tools"][0]["function"]["strict"] = true;
  EXPECT_EQ(body_json(harness.post(kChat, body))["choices"][0]["message"]["content"], "Hello");
  const auto constraint = harness.engine.requests().back().constraint;
  ASSERT_NE(constraint, nullptr);
  const auto accepts = [&](const std::string& text) {
    grammar::ReasoningGate gate = *constraint;
    for (const TokenId token : tiny_frontend().tokenizer().encode_with_added_tokens(text)) {
      if (!gate.accept(token)) return false;
    }
    return gate.finished();
  };
  EXPECT_TRUE(accepts("Hello"));
  EXPECT_TRUE(accepts(kCall));
  EXPECT_TRUE(accepts("Let me see.\n" + std::string(kCall) + "\n" + kCall));
  EXPECT_FALSE(accepts("<tool_call>\n<function=get_time>\n</function>\n</tool_call>"));
  EXPECT_FALSE(accepts("<tool_call>\n<function=get_weather>\n</function>\n</tool_call>"));
  EXPECT_FALSE(
      accepts("<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
              "<parameter=days>\nmany\n</parameter>\n</function>\n</tool_call>"));
  body["tools"][0]["function"]["parameters"]["patternProperties"] = {{"^x", {{"type", "string"}}}};
  const Received refused = harness.post(kChat, body);
  EXPECT_EQ(refused.response.status, 400);
  EXPECT_NE(refused.response.body.find("patternProperties"), std::string::npos);
  body["tools"][0]["function"]["strict"] = "yes";
  EXPECT_EQ(body_json(harness.post(kChat, body))["error"]["param"], "tools[0].function.strict");
}

TEST(ToolChoice, ReferencesInParametersMoveWithThem) {
  ApiHarness harness(saying("[]"));
  Json body = tool_body("required");
  Json& parameters = body["tools"][0]["function"]["parameters"];
  parameters["$defs"] = {{"place", {{"type", "string"}, {"enum", Json::array({"Oslo", "Rome"})}}}};
  parameters["properties"]["city"] = {{"$ref", "#/$defs/place"}};
  EXPECT_EQ(harness.post(kChat, body).response.status, 200);
}

TEST(ToolChoice, AListThatIsCutOffIsContent) {
  ApiHarness harness(
      saying(R"([{"name": "get_weather", "arguments": {"city": "Oslo", "days": 3}}])"));
  Json body = tool_body("required");
  body["max_tokens"] = 4;
  const Json choice = body_json(harness.post(kChat, body))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
}

TEST(ToolChoice, AFormatAndToolsExcludeEachOther) {
  ApiHarness harness(saying("{}"));
  Json body = tool_body();
  body["response_format"] = {{"type", "json_object"}};
  const Received received = harness.post(kChat, body);
  EXPECT_EQ(received.response.status, 400);
  EXPECT_EQ(body_json(received)["error"]["param"], "response_format");
  body["tool_choice"] = "none";
  EXPECT_EQ(harness.post(kChat, body).response.status, 200);
}

TEST(ToolChoice, AnUnsupportedKeywordOfParametersIsNamed) {
  ApiHarness harness(saying("{}"));
  Json body = tool_body({{"type", "function"}, {"function", {{"name", "get_weather"}}}});
  body["tools"][0]["function"]["parameters"]["patternProperties"] = {{"^x", {{"type", "string"}}}};
  const Received received = harness.post(kChat, body);
  EXPECT_EQ(received.response.status, 400);
  const std::string message = body_json(received)["error"]["message"];
  EXPECT_NE(message.find("patternProperties"), std::string::npos) << message;
}

TEST(OutputFormat, SchemasReachTheEngineAndAreRefusedByKeyword) {
  ApiHarness harness(saying("{}"));
  const Json schema = {{"type", "object"}, {"properties", {{"n", {{"type", "integer"}}}}}};
  const std::vector<Json> forms = {
      {{"response_format", {{"type", "json_object"}}}},
      {{"response_format",
        {{"type", "json_schema"},
         {"json_schema", {{"name", "x"}, {"strict", true}, {"schema", schema}}}}}},
      {{"guided_json", schema}},
      {{"guided_json", to_text(schema)}},
      {{"structured_outputs", {{"json", schema}}}},
  };
  for (const Json& form : forms) {
    Json body = chat_body("Hi");
    body.update(form);
    EXPECT_EQ(harness.post(kChat, body).response.status, 200) << form;
    EXPECT_NE(harness.engine.requests().back().constraint, nullptr) << form;
  }
  Json both = chat_body("Hi");
  both.update(forms[1]);
  both["guided_json"] = schema;
  EXPECT_EQ(harness.post(kChat, both).response.status, 400);
}

TEST(Tools, HistoryWithToolMessagesRenders) {
  ApiHarness harness(saying("It is sunny."));
  Json body = tool_body();
  body["messages"].push_back(
      {{"role", "assistant"},
       {"content", nullptr},
       {"tool_calls",
        Json::array(
            {{{"id", "call_1"},
              {"type", "function"},
              {"function", {{"name", "get_weather"}, {"arguments", R"({"city": "Oslo"})"}}}}})}});
  body["messages"].push_back({{"role", "tool"}, {"tool_call_id", "call_1"}, {"content", "sunny"}});
  EXPECT_EQ(harness.post(kChat, body).response.status, 200);
  const std::string prompt =
      tiny_frontend().tokenizer().decode(harness.engine.requests().at(0).prompt);
  EXPECT_NE(prompt.find("<parameter=city>\nOslo\n</parameter>"), std::string::npos);
  EXPECT_NE(prompt.find("<tool_response>\nsunny\n</tool_response>"), std::string::npos);
}

}  // namespace
}  // namespace replayssm::server
