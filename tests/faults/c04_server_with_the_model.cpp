// Reports that need a model: jundot/omlx#825 (tool calls stop after a cache hit),
// basecompute/baseRT#26 (shared prefix: calls lost or mixed), exo-explore/exo#1644 (two end
// tokens), ikawrakow/ik_llama.cpp#1210 (/health waits for a prefill), InternLM/lmdeploy#4426 (busy
// while idle).
#include <sys/resource.h>

#include <thread>

#include "../server/real_server.h"
#include "rounds.h"

namespace replayssm::server {
namespace {

// A kind of problem that models/tiny was trained on, with a number of its own.
Json tool_request(int door) {
  Json body = chat_body("Please open door " + std::to_string(door) + ", the code is U7897.");
  body["tools"] = Json::array(
      {{{"type", "function"},
        {"function",
         {{"name", "open_door"},
          {"description", "Open a door with a code."},
          {"parameters",
           {{"type", "object"},
            {"properties", {{"door", {{"type", "integer"}}}, {"code", {{"type", "string"}}}}},
            {"required", Json::array({"door", "code"})}}}}}}});
  body["temperature"] = 0;
  body["max_tokens"] = 64;
  return body;
}

int door_of(const Json& answer) {
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls") << answer;
  const Json calls = choice["message"].value("tool_calls", Json::array());
  if (calls.empty()) return -1;
  const auto arguments = parse_json(calls[0]["function"]["arguments"].get<std::string>());
  return arguments.ok() ? arguments->value("door", -1) : -1;
}

TEST(C04, ACallComesAgainAfterACacheHit) {
  const Json first = real_server().chat(tool_request(4));
  const Json second = real_server().chat(tool_request(4));
  EXPECT_GT(second["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(door_of(first), 4);
  EXPECT_EQ(door_of(second), 4);
}

TEST(C07, EachRequestGetsItsOwnNumberSequentiallyAndInParallel) {
  constexpr int kRequests = 8;
  for (int i = 0; i < kRequests; ++i)
    EXPECT_EQ(door_of(real_server().chat(tool_request(10 + i))), 10 + i);
  std::vector<std::thread> threads;
  for (int i = 0; i < kRequests; ++i) {
    threads.emplace_back(
        [i] { EXPECT_EQ(door_of(real_server().chat(tool_request(30 + i))), 30 + i); });
  }
  for (std::thread& thread : threads) thread.join();
}

// Both of the checkpoint's end tokens are forced in turn.
TEST(K02, EitherEndTokenEndsAndLeavesNoText) {
  for (const TokenId end : real_server().service->config().eos) {
    Json body = chat_body("Hi");
    body["max_tokens"] = 8;
    body["logit_bias"] = {{std::to_string(end), 100}};
    const Json choice = real_server().chat(body)["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "stop");
    EXPECT_EQ(choice["message"]["content"], "");
  }
}

// A prompt that takes seconds in small chunks; health is asked all the while.
TEST(Q03, HealthAnswersAtOnceDuringALongPrefill) {
  using Clock = std::chrono::steady_clock;
  std::string words;
  for (int i = 0; i < 300; ++i) words += "word " + std::to_string(i) + " ";
  std::atomic<bool> done{false};
  std::thread busy([&] {
    Json body = chat_body(words.substr(0, 2000));
    body["max_tokens"] = 1;
    real_server().chat(body);
    done = true;
  });
  HttpClient client = real_server().client();
  double slowest = 0;
  int asked = 0;
  while (!done) {
    const auto start = Clock::now();
    EXPECT_EQ(client.get("/health").status, 200);
    slowest = std::max(slowest, std::chrono::duration<double>(Clock::now() - start).count());
    ++asked;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  busy.join();
  EXPECT_GT(asked, 0);
  // Ten times as much under sanitizers, as everything there.
  EXPECT_LT(slowest, tests::kSanitized ? 0.5 : 0.05);
}

TEST(J02, AnIdleServerUsesNoProcessorTime) {
  ASSERT_TRUE(RealServer::eventually([] { return real_server().service->idle(); }));
  HttpClient waiting = real_server().client();  // an open connection costs nothing either
  ASSERT_EQ(waiting.get("/health").status, 200);
  const auto used = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  };
  const double before = used();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_LT(used() - before, 0.01 * 2);
}

TEST(Q01, AClientThatLeavesFreesItsSlotAndRow) {
  for (const bool stream : {false, true}) {
    HttpClient client = real_server().client();
    Json body = chat_body("Tell me a story", stream);
    body.update({{"max_tokens", 900}, {"ignore_eos", true}});
    client.send(HttpClient::request("POST", "/v1/chat/completions", to_text(body)));
    ASSERT_TRUE(RealServer::eventually([] { return real_server().service->state().running == 1; }));
    client.close();
    EXPECT_TRUE(RealServer::eventually([] { return real_server().service->idle(); }));
  }
}

}  // namespace
}  // namespace replayssm::server
