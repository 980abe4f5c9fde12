// Many streams at once: nothing is mixed, and memory stays bounded.
#include "http_harness.h"
#include "resident_memory.h"
#include "rounds.h"

namespace replayssm::server {
namespace {

TEST(ManyStreams, AThousandStreamsAtOnceAreWholeInBoundedMemory) {
  const int count = tests::kSanitized ? 100 : 1000;
  HttpHarness harness(
      [](const GenerationRequest& request, int) {
        return says("seed " + std::to_string(request.sampling.seed) + " says \xF0\x9F\x98\x80.");
      },
      {}, std::chrono::milliseconds(2));
  const std::int64_t before = resident_bytes();
  std::vector<HttpClient> clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(harness.client());
    Json body = chat_body("Hi", true);
    body["seed"] = i;
    ASSERT_TRUE(
        clients.back().send(HttpClient::request("POST", "/v1/chat/completions", to_text(body))));
  }
  for (int i = 0; i < count; ++i) {
    const ClientResponse response = clients[static_cast<std::size_t>(i)].read_response();
    ASSERT_TRUE(response.complete) << i;
    EXPECT_EQ(assemble(response.body).content,
              "seed " + std::to_string(i) + " says \xF0\x9F\x98\x80.");
  }
  // A connection with its request costs some tens of KiB; 256 KiB each would be a leak or a queue
  // without bounds.
  if (!tests::kSanitized) {
    EXPECT_LT(resident_bytes() - before, std::int64_t{count} * (256 << 10));
  }
  clients.clear();
  EXPECT_TRUE(eventually([&] { return harness.server->connections() == 0; }));
  EXPECT_EQ(harness.server->open_exchanges(), 0);
  EXPECT_EQ(harness.engine.live(), 0);
}

// Clients that come, read some and go at random, while others read everything.
TEST(ManyStreams, AStormOfDisconnectsLeavesNothingBehind) {
  HttpHarness harness(talking(), {}, std::chrono::microseconds(100));
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&harness, seed] {
      for (unsigned i = 0; i < 25; ++i) {
        HttpClient client = harness.client();
        const bool stays = (seed + i) % 3 == 0;
        const bool stream = i % 2 == 0;
        client.send(HttpClient::request("POST", "/v1/chat/completions",
                                        chat_text("Hi", stream, stays ? 20 : 1 << 19)));
        if (stays) {
          EXPECT_TRUE(client.read_response().complete);
        } else if (i % 4 == 0) {
          client.receive();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(eventually([&] { return harness.engine.live() == 0; }));
  EXPECT_TRUE(eventually([&] { return harness.server->connections() == 0; }));
  EXPECT_EQ(harness.server->open_exchanges(), 0);
}

}  // namespace
}  // namespace replayssm::server
