// Text completions: prompts in every form, echo, legacy log-probabilities.
#include "api_harness.h"

namespace replayssm::server {
namespace {

Json body_of(const Json& prompt) {
  return {{"model", "tiny"}, {"prompt", prompt}, {"max_tokens", 8}, {"temperature", 0}};
}

std::vector<TokenId> tokens_of(const std::string& text) {
  return tiny_frontend().tokenizer().encode(text);
}

TEST(Completions, AWholeAnswerHasTheShapeOfTheContract) {
  ApiHarness harness(saying(" there was"));
  const Json body = body_json(harness.post(kText, body_of("Once")));
  EXPECT_TRUE(body["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(
      body["choices"][0],
      (Json{
          {"index", 0}, {"text", " there was"}, {"logprobs", nullptr}, {"finish_reason", "stop"}}));
  EXPECT_EQ(harness.engine.requests()[0].prompt, tokens_of("Once"));
}

TEST(Completions, WithoutMaxTokensThereAreSixteen) {
  ApiHarness harness(saying("x"));
  Json body = body_of("Once");
  body.erase("max_tokens");
  harness.post(kText, body);
  EXPECT_EQ(harness.engine.requests()[0].max_tokens, 16);
}

TEST(Completions, EveryFormOfPromptReachesTheEngine) {
  const std::vector<TokenId> a = tokens_of("red apples");
  const std::vector<TokenId> b = tokens_of("blue");
  for (const Json& prompt : {Json::array({"red apples", "blue"}), Json::array({a, b})}) {
    ApiHarness harness(saying("!"));
    const Json answer = body_json(harness.post(kText, body_of(prompt)));
    ASSERT_EQ(answer["choices"].size(), 2u);
    EXPECT_EQ(answer["choices"][1]["index"], 1);
    const auto requests = harness.engine.requests();
    EXPECT_EQ(requests.at(0).prompt, a);
    EXPECT_EQ(requests.at(1).prompt, b);
    EXPECT_EQ(answer["usage"]["prompt_tokens"], a.size() + b.size());
  }
  ApiHarness harness(saying("!"));
  harness.post(kText, body_of(Json(a)));
  EXPECT_EQ(harness.engine.requests().at(0).prompt, a);
}

TEST(Completions, ChoicesOfSeveralPromptsAreCountedThrough) {
  ApiHarness harness([](const GenerationRequest& request, int choice) {
    return says(std::string(request.prompt == tokens_of("a") ? "A" : "B") +
                (choice == 0 ? "0" : "1"));
  });
  Json body = body_of(Json::array({"a", "b"}));
  body["n"] = 2;
  const Json answer = body_json(harness.post(kText, body));
  const char* expected[] = {"A0", "A1", "B0", "B1"};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"], i);
    EXPECT_EQ(answer["choices"][i]["text"], expected[i]);
  }
  body["stream"] = true;
  const std::string stream = harness.post(kText, body).stream;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(assemble(stream, i).content, expected[i]);
    EXPECT_EQ(assemble(stream, i).finish_reasons.size(), 1u);
  }
}

TEST(Completions, ATextIsNoControlTokenUnlessAskedFor) {
  ApiHarness harness(saying("x"));
  Json body = body_of("<|im_start|>user\nHi");
  harness.post(kText, body);
  body["parse_special"] = true;
  harness.post(kText, body);
  const auto requests = harness.engine.requests();
  const TokenId control = tiny_frontend().tokenizer().id_of("<|im_start|>").value();
  EXPECT_NE(requests[0].prompt.front(), control);
  EXPECT_EQ(requests[1].prompt.front(), control);
}

TEST(Completions, EchoComesBeforeTheOutputAndIsNotDoubled) {
  ApiHarness harness(saying(" there was"));
  Json body = body_of("Once");
  body["echo"] = true;
  EXPECT_EQ(body_json(harness.post(kText, body))["choices"][0]["text"], "Once there was");
  body["stream"] = true;
  EXPECT_EQ(assemble(harness.post(kText, body).stream).content, "Once there was");
}

TEST(Completions, ACharacterMayBeginInThePromptAndEndInTheOutput) {
  const std::vector<TokenId> whole = tokens_of("x \xF0\x9F\x98\x80");
  ASSERT_GE(whole.size(), 3u);
  ApiHarness harness([&](const GenerationRequest&, int) {
    Script script;
    script.tokens = {whole.back()};
    return script;
  });
  Json body = body_of(std::vector<TokenId>(whole.begin(), whole.end() - 1));
  EXPECT_EQ(body_json(harness.post(kText, body))["choices"][0]["text"], "\xF0\x9F\x98\x80");
  body["echo"] = true;
  EXPECT_EQ(body_json(harness.post(kText, body))["choices"][0]["text"], "x \xF0\x9F\x98\x80");
}

TEST(Completions, LogprobsOfTheOutputHaveOffsetsInCharacters) {
  ApiHarness harness(saying("\xC3\xA9\xC3\xA9 two"));
  Json body = body_of("Once");
  body["logprobs"] = 2;
  for (const bool echo : {false, true}) {
    body["echo"] = echo;
    const Json choice = body_json(harness.post(kText, body))["choices"][0];
    const Json& logprobs = choice["logprobs"];
    const std::size_t tokens = logprobs["tokens"].size();
    EXPECT_EQ(logprobs["token_logprobs"].size(), tokens);
    EXPECT_EQ(logprobs["top_logprobs"].size(), tokens);
    EXPECT_EQ(logprobs["text_offset"].size(), tokens);
    const std::size_t expected =
        says("\xC3\xA9\xC3\xA9 two").tokens.size() + (echo ? tokens_of("Once").size() : 0);
    EXPECT_EQ(tokens, expected);
    EXPECT_EQ(logprobs["text_offset"][0], 0);
    const std::string text = choice["text"];
    EXPECT_EQ(logprobs["text_offset"][tokens - 1],
              count_characters(text) -
                  count_characters(logprobs["tokens"][tokens - 1].get<std::string>()));
  }
}

// The U+FFFD of bytes that stay incomplete comes with the next token, and is not its text.
TEST(Completions, OffsetsCountWhatIncompleteCharactersLeave) {
  const TokenId a = tokens_of("a").front();
  const std::vector<TokenId> face = tokens_of("\xF0\x9F\x98\x80");
  ASSERT_GE(face.size(), 2u);
  ApiHarness harness([&](const GenerationRequest&, int) {
    Script script;
    script.tokens = {a, face.front(), a};
    return script;
  });
  Json body = body_of(std::vector<TokenId>{a, face.front(), a, face.front()});
  body["logprobs"] = 0;
  const auto answer = [&] { return body_json(harness.post(kText, body))["choices"][0]; };
  EXPECT_EQ(answer()["text"], "\uFFFDa\uFFFDa");
  EXPECT_EQ(answer()["logprobs"]["text_offset"], Json::array({1, 2, 3}));
  body["prompt"] = Json::array({a, face.front(), a});
  body["echo"] = true;
  EXPECT_EQ(answer()["text"], "a\uFFFDaa\uFFFDa");
  EXPECT_EQ(answer()["logprobs"]["text_offset"], Json::array({0, 1, 2, 3, 4, 5}));
}

TEST(Completions, NoStopTextCountsBeforeMinTokens) {
  const TokenId a = tokens_of("a").front(), b = tokens_of("b").front();
  ApiHarness harness([&](const GenerationRequest&, int) {
    Script script;
    script.tokens = {a, b, a, b, a, b};
    return script;
  });
  Json body = body_of("Once");
  body["stop"] = "b";
  const char* const expected[] = {"a", "a", "a", "aba", "aba", "ababa"};
  for (int least = 0; least < 6; ++least) {
    body["min_tokens"] = least;
    EXPECT_EQ(body_json(harness.post(kText, body))["choices"][0]["text"], expected[least]) << least;
  }
}

TEST(Completions, ZeroTokensWithEchoScoreThePromptAlone) {
  ApiHarness harness(saying("never shown"));
  Json body = body_of("Once upon a time");
  body.update({{"echo", true}, {"logprobs", 1}, {"max_tokens", 0}});
  const Json answer = body_json(harness.post(kText, body));
  EXPECT_EQ(answer["choices"][0]["text"], "Once upon a time");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["choices"][0]["logprobs"]["tokens"].size(),
            tokens_of("Once upon a time").size());
  EXPECT_EQ(answer["usage"]["completion_tokens"], 0);
}

TEST(Completions, ARefusedPromptOfSeveralLeavesNoneBehind) {
  ApiHarness harness([](const GenerationRequest&, int) { return says("long ", false); }, {},
                     tiny_frontend(), 64);
  Json long_prompt = Json::array();
  for (int i = 0; i < 70; ++i) long_prompt.push_back(5);
  const Received received =
      harness.post(kText, body_of(Json::array({Json::array({5, 6}), long_prompt})));
  EXPECT_EQ(received.response.status, 400);
  EXPECT_EQ(harness.engine.live(), 0);
  EXPECT_TRUE(harness.engine.requests().empty());
}

}  // namespace
}  // namespace replayssm::server
