// SharpAI/SwiftLM#126, #133: a stop string split over tokens leaked into the stream.
// lightseekorg/smg#2203: stop strings held in one mode only.
#include "../server/api_harness.h"

namespace replayssm::server {
namespace {

struct StopCase {
  std::vector<std::string> pieces;  // one or more tokens each
  Json stop;
  std::string text;
  std::string finish;
};

Script says_pieces(const std::vector<std::string>& pieces) {
  Script script;
  for (const std::string& piece : pieces) {
    for (const TokenId id : tiny_frontend().tokenizer().encode(piece)) script.tokens.push_back(id);
  }
  return script;
}

const std::vector<StopCase>& cases() {
  static const std::vector<StopCase> all = {
      {{"one ", "E", "N", "D", " x"}, "END", "one ", "stop"},
      {{"one ", "E", "N", "Q"}, "END", "one ENQ", "stop"},
      {{"one ", "E", "N"}, "END", "one EN", "stop"},  // the held tail is flushed at the end
      {{"a\n", "\nb"}, Json::array({"\n\n", "b"}), "a", "stop"},
      {{"E", "E", "N", "D"}, "END", "E", "stop"},
      {{"END"}, "END", "", "stop"},
      {{"caf\xC3", "\xA9 END"}, "END", "caf\xC3\xA9 ", "stop"},
  };
  return all;
}

TEST(M01, TheTextEndsBeforeTheStopStringInBothModes) {
  for (const StopCase& test : cases()) {
    std::string text;
    for (const std::string& piece : test.pieces) text += piece;
    const Script script =
        text.find("\xC3") == std::string::npos ? says_pieces(test.pieces) : says(text);
    for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
      for (const bool stream : {false, true}) {
        ApiHarness harness([&](const GenerationRequest&, int) { return script; });
        Json body = std::string(path).ends_with("chat/completions")
                        ? chat_body("Hi", stream)
                        : Json{{"prompt", "a"}, {"max_tokens", 50}, {"stream", stream}};
        body["stop"] = test.stop;
        const Received received = harness.post(path, body);
        std::string shown;
        std::string finish;
        if (stream) {
          const Assembled all = assemble(received.stream);
          shown = all.content;
          ASSERT_EQ(all.finish_reasons.size(), 1u);
          finish = all.finish_reasons[0];
        } else {
          const Json choice = body_json(received)["choices"][0];
          shown = choice.contains("text") ? choice["text"] : choice["message"]["content"];
          finish = choice["finish_reason"];
        }
        EXPECT_EQ(shown, test.text) << path << " " << stream;
        EXPECT_EQ(finish, test.finish);
      }
    }
  }
}

TEST(M02, TheStopStringIsShownWhereThatIsAskedFor) {
  for (const bool stream : {false, true}) {
    ApiHarness harness([](const GenerationRequest&, int) { return says("one END two", false); });
    Json body = chat_body("Hi", stream);
    body.update({{"stop", "END"}, {"include_stop_str_in_output", true}});
    const Received received = harness.post("/v1/chat/completions", body);
    const std::string shown =
        stream ? assemble(received.stream).content
               : body_json(received)["choices"][0]["message"]["content"].get<std::string>();
    EXPECT_EQ(shown, "one END");
  }
}

// The engine is told at once, and does not go on until max_tokens.
TEST(M02, AMatchEndsTheGeneration) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("x END ", false); });
  Json body = chat_body("Hi");
  body["stop"] = "END";
  const Json answer = body_json(harness.post("/v1/chat/completions", body));
  EXPECT_LE(answer["usage"]["completion_tokens"].get<std::size_t>(), says("x END").tokens.size());
  EXPECT_LT(harness.engine.steps(), 50);
}

}  // namespace
}  // namespace replayssm::server
