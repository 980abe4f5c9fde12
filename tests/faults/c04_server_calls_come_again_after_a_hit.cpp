// jundot/omlx#825: tool calls stopped after a cache hit. basecompute/baseRT#26: with a shared
// prefix calls were lost, or their arguments mixed (C07).
#include <thread>

#include "../server/real_server.h"

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
  for (int i = 0; i < kRequests; ++i) {
    EXPECT_EQ(door_of(real_server().chat(tool_request(10 + i))), 10 + i);
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kRequests; ++i) {
    threads.emplace_back(
        [i] { EXPECT_EQ(door_of(real_server().chat(tool_request(30 + i))), 30 + i); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace replayssm::server
