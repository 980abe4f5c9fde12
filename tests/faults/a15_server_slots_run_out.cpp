// sgl-project/sglang#33773, #36770, #40128: a failed state allocation killed the server.
#include <thread>

#include "../server/real_server.h"

namespace replayssm::server {
namespace {

Json story(int seed, int n, int tokens) {
  // Long enough for a checkpoint, which takes a slot.
  return {{"prompt", "Story " + std::to_string(seed) +
                         ": once upon a time there was a small town by the sea, and in the town "
                         "there lived an old man who had a boat and a dog"},
          {"max_tokens", tokens},
          {"ignore_eos", true},
          {"temperature", 0},
          {"n", n}};
}

ServiceOptions few_slots() {
  ServiceOptions options = real_options();
  options.engine.max_running_requests = 4;
  options.engine.context_length = 256;
  options.engine.deterministic = true;
  return options;
}

// More requests than rows, and choices among them: who has no row waits.
TEST(A15, MoreRequestsThanRowsWaitAndAreServed) {
  ServiceOptions options = few_slots();
  options.engine.max_running_requests = 2;
  const auto server = start_real_server(options);
  const Json alone = server->completion(story(1, 1, 24))["choices"][0]["text"];
  std::vector<std::thread> clients;
  std::vector<Json> answers(4);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    clients.emplace_back(
        [&, i] { answers[i] = server->completion(story(1, i == 3 ? 2 : 1, 24))["choices"]; });
  }
  for (std::thread& client : clients) client.join();
  for (const Json& choices : answers) {
    for (const Json& choice : choices) EXPECT_EQ(choice["text"], alone);
  }
  EXPECT_EQ(answers[3].size(), 2u);
  EXPECT_TRUE(server->service->idle());
}

// The cache holds every slot when four choices of one prompt, which share one, are due to fold.
TEST(A15, SlotsThatRunOutAtADueFoldEndNoRequest) {
  const auto server = start_real_server(few_slots());
  const EngineState start = server->service->state();
  ASSERT_EQ(start.slots.used, 0);
  const Json alone = server->completion(story(0, 1, 60))["choices"][0]["text"];
  int most_used = 0;
  for (int i = 1; i < 20; ++i) {
    server->completion(story(i, 1, 40));
    most_used = std::max(most_used, server->service->state().slots.used);
  }
  EXPECT_EQ(most_used, start.slots.total) << "they did run out";
  for (int round = 0; round < 3; ++round) {
    const Json answer = server->completion(story(0, 4, 60));
    ASSERT_EQ(answer["choices"].size(), 4u);
    for (const Json& choice : answer["choices"]) {
      EXPECT_EQ(choice["finish_reason"], "length");
      EXPECT_EQ(choice["text"], alone);
    }
    EXPECT_EQ(server->client().get("/health").status, 200);
    server->completion(story(100 + round, 1, 40));
  }
  EXPECT_GT(server->service->state().counters.entries_evicted, 0);
  server->service->flush_cache();
  EXPECT_EQ(server->service->state().slots.used, 0);
}

}  // namespace
}  // namespace replayssm::server
