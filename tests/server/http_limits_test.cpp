// Garbage, too much, too slow: the client is told where that is possible, and nobody else notices.
#include <random>

#include "http_harness.h"

namespace replayssm::server {
namespace {

HttpLimits short_limits() {
  HttpLimits limits;
  limits.header_bytes = 2048;
  limits.body_bytes = 10000;
  limits.idle = std::chrono::milliseconds(300);
  limits.body = std::chrono::milliseconds(300);
  limits.write = std::chrono::milliseconds(300);
  limits.silence = std::chrono::milliseconds(100);
  limits.outgoing_bytes = 100000;
  return limits;
}

void expect_alive(const HttpHarness& harness) {
  EXPECT_EQ(harness.client().get("/health").status, 200);
}

TEST(Limits, TooLongABodyIsRefusedWhetherAnnouncedOrNot) {
  HttpHarness harness({}, short_limits());
  const std::string large(20000, ' ');
  HttpClient announced = harness.client();
  const ClientResponse response = announced.post(kChat, large);
  EXPECT_EQ(response.status, 413);
  EXPECT_NE(response.body.find("10000"), std::string::npos);
  EXPECT_TRUE(announced.ended());
  HttpClient chunked = harness.client();
  chunked.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 20 && chunked.send("3e8\r\n" + std::string(1000, ' ') + "\r\n"); ++i) {
  }
  EXPECT_EQ(chunked.read_response().status, 413);
  expect_alive(harness);
}

TEST(Limits, TooLongAHeaderIsRefused) {
  HttpHarness harness({}, short_limits());
  HttpClient client = harness.client();
  client.send(
      HttpClient::request("GET", "/health", "", "X-Long: " + std::string(5000, 'x') + "\r\n"));
  EXPECT_EQ(client.read_response().status, 431);
  expect_alive(harness);
}

TEST(Limits, WhatIsNoHttpIsRefused) {
  HttpHarness harness({}, short_limits());
  HttpClient client = harness.client();
  client.send("this is no request\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 400);
  EXPECT_TRUE(client.ended());
  expect_alive(harness);
}

TEST(Limits, RandomBytesNeverEndTheServer) {
  HttpHarness harness(saying("Hi"), short_limits());
  std::mt19937 random(7);
  const std::string good = HttpClient::request("POST", kChat, chat_text("Hi"));
  for (int i = 0; i < 100; ++i) {
    std::string bytes = good;
    for (int change = 0; change < 8; ++change) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    HttpClient client = harness.client();
    client.send(bytes.substr(0, random() % (bytes.size() + 1)));
    client.close();
  }
  expect_alive(harness);
  EXPECT_TRUE(eventually([&] { return harness.engine.live() == 0; }));
}

TEST(Limits, ABodyThatNeverComesTimesOut) {
  HttpHarness harness({}, short_limits());
  HttpClient client = harness.client();
  client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_EQ(client.read_response().status, 408);
  EXPECT_TRUE(client.ended());
}

TEST(Limits, AnIdleConnectionIsClosed) {
  HttpHarness harness({}, short_limits());
  HttpClient silent = harness.client();
  EXPECT_TRUE(silent.ended());
  HttpClient half = harness.client();
  half.send("GET /health HT");
  EXPECT_EQ(half.read_response().status, 408);
  EXPECT_TRUE(half.ended());
  EXPECT_TRUE(eventually([&] { return harness.server->connections() == 0; }));
}

TEST(Limits, ALongAnswerIsNotIdle) {
  HttpHarness harness(
      [](const GenerationRequest&, int) {
        Script script = says("Hello");
        script.prompt_steps = 10;
        return script;
      },
      short_limits(), std::chrono::milliseconds(80));
  const ClientResponse whole = harness.client().post(kChat, chat_text("Hi"));
  EXPECT_EQ(whole.status, 200);
  const ClientResponse stream = harness.client().post(kChat, chat_text("Hi", true));
  EXPECT_NE(stream.body.find(": ping\n\n"), std::string::npos);
  EXPECT_EQ(assemble(stream.body).content, "Hello");
}

// A response may be longer than what is allowed to wait for a client that takes nothing, and a
// client may take its time as long as it takes something.
TEST(Limits, ALongResponseAndASteadyReaderAreNoSlowClient) {
  HttpLimits limits = short_limits();
  limits.body_bytes = 1 << 20;
  HttpHarness harness({}, limits);
  Json body;
  body["prompt"] = std::string(100'000, 'a') + " b";
  const std::string request = HttpClient::request("POST", "/tokenize", to_text(body));
  const ClientResponse whole = harness.client().post("/tokenize", to_text(body));
  ASSERT_TRUE(whole.complete);
  ASSERT_GT(whole.body.size(), limits.outgoing_bytes);
  HttpClient steady(harness.server->port(), 4096);
  steady.send(request);
  std::size_t received = 0;
  for (int i = 0; i < 12; ++i) {  // twice as long as a write may take without any progress
    std::this_thread::sleep_for(limits.write / 6);
    for (int j = 0; j < 4; ++j) steady.receive();
    received = steady.received_bytes();
  }
  EXPECT_LT(received, whole.body.size());
  EXPECT_EQ(steady.read_response().body, whole.body);
}

// The client reads nothing: its output waits up to the limit, then it is dropped and its generation
// ends. Another client is served all the while.
TEST(Limits, AClientThatReadsNothingIsDroppedAndHindersNobody) {
  HttpHarness harness(talking(), short_limits(), std::chrono::microseconds(50));
  HttpClient slow(harness.server->port(), 4096);
  Json body = chat_body("Hi", true);
  body["max_tokens"] = 1 << 19;
  // The system's own buffers are full sooner.
  body["n"] = 16;
  body["logprobs"] = true;
  body["top_logprobs"] = 20;
  slow.send(HttpClient::request("POST", kChat, to_text(body)));
  ASSERT_TRUE(eventually([&] { return harness.engine.live() == 1; }));
  const ClientResponse other = harness.client().post(kChat, chat_text("Hi", true, 20));
  EXPECT_TRUE(other.complete);
  EXPECT_TRUE(eventually([&] { return harness.engine.live() == 0; }));
  expect_alive(harness);
}

TEST(Limits, MoreConnectionsThanAllowedAreDropped) {
  HttpLimits limits;
  limits.connections = 3;
  HttpHarness harness({}, limits);
  std::vector<HttpClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(harness.client());
    ASSERT_EQ(clients.back().get("/health").status, 200);
  }
  HttpClient fourth = harness.client();
  EXPECT_EQ(fourth.get("/health").status, 0);
  clients.clear();
  ASSERT_TRUE(eventually([&] { return harness.server->connections() == 0; }));
  expect_alive(harness);
}

}  // namespace
}  // namespace replayssm::server
