// lmstudio-ai/lmstudio-bug-tracker#1773, ollama/ollama#14850, #10929: with a thinking model the
// schema was applied to the reasoning, or not at all. waybarrios/vllm-mlx#539, mlx-serve #331,
// maclocal-api #44: unsupported keywords were ignored in silence.
#include "../server/api_harness.h"

namespace replayssm::server {
namespace {

Json schema_body(const Json& schema) {
  Json body = chat_body("Hi");
  body["response_format"] = {
      {"type", "json_schema"},
      {"json_schema", {{"name", "x"}, {"strict", true}, {"schema", schema}}}};
  return body;
}

bool accepts(const grammar::ReasoningGate& constraint, const std::string& text) {
  grammar::ReasoningGate gate = constraint;
  for (const TokenId token : tiny_frontend().tokenizer().encode_with_added_tokens(text)) {
    if (!gate.accept(token)) return false;
  }
  return gate.finished();
}

TEST(P01, TheSchemaHoldsAfterTheReasoningOnly) {
  const Json schema = {{"type", "object"},
                       {"properties", {{"n", {{"type", "integer"}}}}},
                       {"required", Json::array({"n"})}};
  ApiHarness harness(
      [](const GenerationRequest&, int) { return says("Let me think.</think>\n\n{\"n\": 5}"); }, {},
      thinking_frontend());
  const Json message =
      body_json(harness.post("/v1/chat/completions", schema_body(schema)))["choices"][0]["message"];
  EXPECT_EQ(message["content"], "{\"n\": 5}");
  EXPECT_EQ(message["reasoning_content"], "Let me think.");
  const auto thinking = harness.engine.requests().at(0).constraint;
  ASSERT_NE(thinking, nullptr);
  EXPECT_TRUE(accepts(*thinking, "anything at all</think>\n\n{\"n\": 5}"));
  EXPECT_FALSE(accepts(*thinking, "anything at all</think>\n\nno"));
  EXPECT_FALSE(accepts(*thinking, "{\"n\": 5}"));  // the reasoning is still open

  Json closed = schema_body(schema);
  closed["chat_template_kwargs"] = {{"enable_thinking", false}};
  harness.post("/v1/chat/completions", closed);
  const auto plain = harness.engine.requests().at(1).constraint;
  EXPECT_TRUE(accepts(*plain, "{\"n\": 5}"));
  EXPECT_FALSE(accepts(*plain, "anything"));
}

TEST(P02, KeywordsAreEnforcedOrNamed) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("{}"); });
  const Json object = {{"type", "object"}, {"properties", {{"a", {{"type", "integer"}}}}}};
  Json closed = object;
  closed["additionalProperties"] = false;
  Json recursive = {{"type", "object"}, {"properties", {{"next", {{"$ref", "#"}}}}}};
  Json pattern = {{"type", "object"},
                  {"properties", {{"id", {{"type", "string"}, {"pattern", "^[A-Z]{2}$"}}}}},
                  {"required", Json::array({"id"})}};
  for (const Json& schema : {closed, recursive, pattern}) {
    EXPECT_EQ(harness.post("/v1/chat/completions", schema_body(schema)).response.status, 200);
  }
  const auto requests = harness.engine.requests();
  EXPECT_FALSE(accepts(*requests[0].constraint, "{\"b\": 1}"));
  EXPECT_TRUE(accepts(*requests[1].constraint, "{\"next\": {\"next\": {}}}"));
  EXPECT_TRUE(accepts(*requests[2].constraint, "{\"id\": \"AB\"}"));
  EXPECT_FALSE(accepts(*requests[2].constraint, "{\"id\": \"ab\"}"));

  for (const char* keyword : {"patternProperties", "if", "not", "uniqueItems", "dependentRequired",
                              "multipleOf", "noSuchKeyword"}) {
    Json schema = object;
    schema["properties"]["a"][keyword] =
        keyword == std::string("multipleOf") ? Json(3) : Json::object();
    const Received received = harness.post("/v1/chat/completions", schema_body(schema));
    EXPECT_EQ(received.response.status, 400) << keyword;
    const Json error = body_json(received)["error"];
    EXPECT_NE(error["message"].get<std::string>().find(keyword), std::string::npos) << error;
    EXPECT_EQ(error["param"], "response_format.json_schema.schema");
  }
}

}  // namespace
}  // namespace replayssm::server
