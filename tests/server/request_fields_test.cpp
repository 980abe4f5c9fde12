// Bodies that are no JSON, or more than JSON should be.
#include "server/request_fields.h"

#include "api_harness.h"

namespace replayssm::server {
namespace {

TEST(Body, WhatIsNoJsonIsRefusedAndNeverAnException) {
  const std::string texts[] = {"",
                               " ",
                               "{",
                               "}",
                               "null",
                               "5",
                               "[]",
                               "\"x\"",
                               "{\"a\":}",
                               "{\"a\" 1}",
                               "{'a': 1}",
                               "{} {}",
                               "{\"messages\": [\"\xff\xfe\"]}",
                               "\xef\xbb\xbf\xef\xbb\xbf{}",
                               "{\"a\": 1e999}",
                               std::string("\0\0\0", 3),
                               std::string(100000, '['),
                               "{\"a\":" + std::string(100000, '{')};
  for (const std::string& text : texts) {
    for (const char* path : {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize",
                             "/apply-template"}) {
      ApiHarness harness;
      const Received received = harness.post_text(path, text);
      EXPECT_EQ(received.response.status, 400) << path << " " << text.substr(0, 40);
      EXPECT_TRUE(body_json(received)["error"]["message"].is_string());
    }
  }
}

// Whatever is refused does not look as if it were accepted.
TEST(Body, ARefusedNumberIsOutsideOfWhatIsExpected) {
  ApiHarness harness;
  const auto message = [&](const char* path, const std::string& text) {
    return body_json(harness.post_text(path, text))["error"]["message"].get<std::string>();
  };
  EXPECT_NE(message("/v1/completions", R"({"prompt": "a", "max_tokens": 2147483648})")
                .find("expected a whole number from 0 to 2147483647"),
            std::string::npos);
  EXPECT_NE(message("/v1/chat/completions",
                    R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": -1})")
                .find("expected a whole number, 1 or more"),
            std::string::npos);
  EXPECT_NE(message("/v1/completions", R"({"prompt": [-1]})").find("token ids (0 or more)"),
            std::string::npos);
  const Json many = {{"prompt", std::vector<std::string>(1025, "a")}};
  EXPECT_NE(message("/v1/completions", many.dump()).find("at most 1024 prompts"),
            std::string::npos);
}

TEST(Body, MembersKeepTheirOrderHoweverManyThereAre) {
  for (const int members : {5, 40, 100'000}) {  // by searching from the first: ten seconds
    std::string text = "{\"twice\":1";
    for (int i = 0; i < members; ++i) text += fmt::format(",\"m{}\":[{}]", i, i);
    text += ",\"twice\":{\"a\":2}}";
    const auto json = parse_json(text);
    ASSERT_TRUE(json.ok()) << json.error().message;
    ASSERT_EQ(json->size(), static_cast<std::size_t>(members) + 1);
    int at = -1;
    for (const auto& [name, value] : json->items()) {
      EXPECT_EQ(name, at < 0 ? "twice" : fmt::format("m{}", at));
      EXPECT_EQ(value, at < 0 ? Json({{"a", 2}}) : Json::array({at}));
      ++at;
    }
  }
}

TEST(Body, DeepNestingIsRefusedAnywhere) {
  Json deep = "x";
  for (int i = 0; i < kMostNesting + 1; ++i) deep = Json::array({deep});
  ApiHarness harness;
  for (const char* field : {"messages", "tools", "chat_template_kwargs", "guided_json"}) {
    Json body = chat_body("Hi");
    body[field] = deep;
    EXPECT_EQ(harness.post("/v1/chat/completions", body).response.status, 400) << field;
  }
}

TEST(Body, BracketsInsideStringsDoNotCount) {
  EXPECT_TRUE(parse_json("\"" + std::string(1000, '[') + "\"").ok());
  EXPECT_TRUE(parse_json(R"("\"[[[[")").ok());
}

TEST(RequestFields, TheFirstErrorIsKept) {
  const Json body = {{"a", "x"}, {"b", "y"}};
  RequestFields fields(body);
  std::optional<double> number;
  fields.read("a", number);
  fields.read("b", number);
  ASSERT_FALSE(fields.ok());
  EXPECT_EQ(fields.error()->param, "a");
}

TEST(RequestFields, LongValuesAreCutInMessagesBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "\xE6\xBC\xA2";
  const std::string message = shown(Json(text));
  EXPECT_LT(message.size(), 100u);
  EXPECT_NO_THROW(Json(message).dump());
}

}  // namespace
}  // namespace replayssm::server
