// ikawrakow/ik_llama.cpp#1210: /health waited for a prefill.
#include <atomic>
#include <chrono>
#include <thread>

#include "../server/real_server.h"
#include "rounds.h"

namespace replayssm::server {
namespace {

// A prompt that takes seconds in small chunks; health is asked all the while.
TEST(Q03, HealthAnswersAtOnceDuringALongPrefill) {
  using Clock = std::chrono::steady_clock;
  std::string words;
  for (int i = 0; i < 300; ++i) words += "word " + std::to_string(i) + " ";
  std::atomic<bool> done{false};
  std::thread busy([&] {
    Json body = chat_body(words.substr(0, 1500));
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

}  // namespace
}  // namespace replayssm::server
