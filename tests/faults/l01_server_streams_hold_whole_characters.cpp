// Luce-Org/lucebox#641, waybarrios/vllm-mlx#109, Blaizzy/mlx-vlm#1778, #1771: characters that are
// several tokens reached streams in halves, as U+FFFD.
#include "../server/api_harness.h"

namespace replayssm::server {
namespace {

// One token a byte, so that every character is split wherever it can be.
Script bytes_of(std::string_view text) {
  Script script;
  const Tokenizer& tokenizer = tiny_frontend().tokenizer();
  for (const char byte : text) {
    for (TokenId id = 0; id < tokenizer.size(); ++id) {
      if (!tokenizer.is_added(id) && tokenizer.token_bytes(id) == std::string_view(&byte, 1)) {
        script.tokens.push_back(id);
        break;
      }
    }
  }
  EXPECT_EQ(script.tokens.size(), text.size());
  return script;
}

TEST(L01, StreamedCharactersAreWholeInChatAndCompletions) {
  const std::string texts[] = {
      "\xF0\x9F\x98\x80",                                                          // an emoji
      "\xE6\xBC\xA2\xE5\xAD\x97",                                                  // two ideographs
      "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7",  // a family
      "\xE0\xB8\xAA\xE0\xB8\xA7\xE0\xB8\xB1\xE0\xB8\xAA\xE0\xB8\x94\xE0\xB8\xB5"};  // Thai
  for (const std::string& text : texts) {
    ApiHarness harness([&](const GenerationRequest&, int) { return bytes_of(text); });
    for (const bool logprobs : {false, true}) {
      Json body = chat_body("Hi", true);
      body["logprobs"] = logprobs;
      const std::string chat = harness.post("/v1/chat/completions", body).stream;
      EXPECT_EQ(assemble(chat).content, text);
      EXPECT_EQ(chat.find("\xEF\xBF\xBD"), std::string::npos);
      EXPECT_EQ(chat.find("\\ufffd"), std::string::npos);
    }
    const std::string plain =
        harness.post("/v1/completions", {{"prompt", "a"}, {"stream", true}, {"max_tokens", 99}})
            .stream;
    EXPECT_EQ(assemble(plain).content, text);
    const Json whole = body_json(harness.post("/v1/chat/completions", chat_body("Hi")));
    EXPECT_EQ(whole["choices"][0]["message"]["content"], text);
  }
}

// ai-dynamo/dynamo#12630: an end in the middle of a character lost or doubled bytes.
TEST(L02, HalfACharacterAtTheEndIsDroppedOnce) {
  ApiHarness harness([](const GenerationRequest&, int) { return bytes_of("ok \xF0\x9F\x98\x80"); });
  for (const int max_tokens : {4, 5, 6}) {
    for (const bool stream : {false, true}) {
      Json body = chat_body("Hi", stream);
      body["max_tokens"] = max_tokens;
      const Received received = harness.post("/v1/chat/completions", body);
      const std::string text =
          stream ? assemble(received.stream).content
                 : body_json(received)["choices"][0]["message"]["content"].get<std::string>();
      EXPECT_EQ(text, "ok ");
    }
  }
}

// ferrox #124: two streams shared one decoder.
TEST(L03, ParallelStreamsDoNotMix) {
  ScriptedEngine engine([](const GenerationRequest& request, int choice) {
    const bool first = request.sampling.seed + static_cast<unsigned>(choice) == 1;
    return bytes_of(first ? "\xF0\x9F\x98\x80\xF0\x9F\x98\x81"
                          : "\xF0\x9F\x8D\x8E\xF0\x9F\x8D\x90");
  });
  Api api(engine, tiny_frontend(), tiny_served(), {}, [](std::function<void()> work) { work(); });
  Received received[2];
  std::vector<std::shared_ptr<RecordingExchange>> exchanges;
  for (int i = 0; i < 2; ++i) {
    Json body = chat_body("Hi", true);
    body["seed"] = i + 1;
    exchanges.push_back(std::make_shared<RecordingExchange>(received[i]));
    api.handle({"POST", "/v1/chat/completions", "", to_text(body), "", "", "id"}, exchanges.back());
  }
  bool any = true;
  while (any) {
    any = exchanges[0]->run();
    any |= exchanges[1]->run();
    any |= engine.step();
  }
  EXPECT_EQ(assemble(received[0].stream).content, "\xF0\x9F\x98\x80\xF0\x9F\x98\x81");
  EXPECT_EQ(assemble(received[1].stream).content, "\xF0\x9F\x8D\x8E\xF0\x9F\x8D\x90");
}

}  // namespace
}  // namespace replayssm::server
