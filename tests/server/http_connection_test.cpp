// Connections: keep-alive, pipelining, headers, HTTP/1.0, clients that go away.
#include "http_harness.h"

namespace replayssm::server {
namespace {

TEST(Connection, SeveralRequestsUseOneConnection) {
  HttpHarness harness(saying("Hello"));
  HttpClient client = harness.client();
  for (int i = 0; i < 3; ++i) {
    const ClientResponse response = client.post(kChat, chat_text("Hi"));
    EXPECT_EQ(response.status, 200);
    EXPECT_TRUE(response.complete);
    EXPECT_EQ(client.get("/health").status, 200);
    const ClientResponse stream = client.post(kChat, chat_text("Hi", true));
    EXPECT_TRUE(stream.complete);
    EXPECT_EQ(assemble(stream.body).content, "Hello");
  }
  EXPECT_EQ(harness.server->connections(), 1);
}

TEST(Connection, PipelinedRequestsAreAnsweredInOrder) {
  HttpHarness harness(saying("Hello"));
  HttpClient client = harness.client();
  client.send(HttpClient::request("POST", kChat, chat_text("Hi")) +
              HttpClient::request("GET", "/version", "") +
              HttpClient::request("POST", kChat, chat_text("Hi", true)));
  EXPECT_NE(client.read_response().body.find("Hello"), std::string::npos);
  EXPECT_NE(client.read_response().body.find("version"), std::string::npos);
  EXPECT_EQ(assemble(client.read_response().body).content, "Hello");
}

TEST(Connection, StreamsHaveTheHeadersOfEvents) {
  HttpHarness harness(saying("Hello"));
  HttpClient client = harness.client();
  const ClientResponse response = client.post(kChat, chat_text("Hi", true));
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(response.headers.at("cache-control"), "no-cache");
}

TEST(Connection, RequestIdsAreEchoedOrMade) {
  HttpHarness harness(saying("Hello"));
  HttpClient client = harness.client();
  client.send(HttpClient::request("GET", "/health", "", "X-Request-Id: abc-1\r\n"));
  EXPECT_EQ(client.read_response().headers.at("x-request-id"), "abc-1");
  EXPECT_TRUE(client.get("/health").headers.at("x-request-id").starts_with("req-"));
  client.send(HttpClient::request("POST", kChat, chat_text("Hi", true), "x-request-id: s-1\r\n"));
  EXPECT_EQ(client.read_response().headers.at("x-request-id"), "s-1");
  // What would break a log line is replaced.
  client.send(
      HttpClient::request("GET", "/health", "", "x-request-id: " + std::string(500, 'x') + "\r\n"));
  EXPECT_TRUE(client.read_response().headers.at("x-request-id").starts_with("req-"));
}

TEST(Connection, AnOldClientGetsAStreamThatEndsWithTheConnection) {
  HttpHarness harness(saying("Hello"));
  HttpClient client = harness.client();
  const std::string body = chat_text("Hi", true);
  client.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  const ClientResponse response = client.read_response();
  EXPECT_FALSE(response.headers.contains("transfer-encoding"));
  EXPECT_EQ(assemble(response.body).content, "Hello");
}

TEST(Connection, CloseIsHonoured) {
  HttpHarness harness(saying("Hello"));
  HttpClient client = harness.client();
  client.send(HttpClient::request("GET", "/health", "", "Connection: close\r\n"));
  EXPECT_EQ(client.read_response().headers.at("connection"), "close");
  EXPECT_TRUE(client.ended());
}

TEST(Connection, HeadHasNoBody) {
  HttpHarness harness;
  HttpClient client = harness.client();
  client.send(HttpClient::request("HEAD", "/health", ""));
  EXPECT_EQ(client.read_response(true).status, 200);
  EXPECT_EQ(client.get("/health").status, 200);
}

TEST(Connection, ABodyThatIsAnnouncedIsWaitedFor) {
  HttpHarness harness(saying("Hello"));
  HttpClient client = harness.client();
  const std::string body = chat_text("Hi");
  client.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_EQ(client.read_head().status, 100);
  client.send(body);
  EXPECT_EQ(client.read_response().status, 200);
}

TEST(Connection, CrossOriginPagesAreAllowedOnlyWhenNamed) {
  const std::string origin = "Origin: http://page.example\r\n";
  {
    HttpHarness harness;
    HttpClient client = harness.client();
    client.send(HttpClient::request("OPTIONS", kChat, "", origin));
    const ClientResponse response = client.read_response();
    EXPECT_EQ(response.status, 204);
    EXPECT_FALSE(response.headers.contains("access-control-allow-origin"));
  }
  for (const char* allowed : {"http://page.example", "*"}) {
    HttpHarness harness({}, {}, std::chrono::microseconds(200), ApiOptions{"", allowed});
    HttpClient client = harness.client();
    client.send(HttpClient::request("OPTIONS", kChat, "", origin));
    const auto preflight = client.read_response().headers;
    EXPECT_EQ(preflight.at("access-control-allow-origin"), allowed);
    EXPECT_EQ(preflight.at("access-control-allow-headers"), "Authorization, *");
    client.send(HttpClient::request("GET", "/health", "", origin));
    EXPECT_EQ(client.read_response().headers.at("access-control-allow-origin"), allowed);
  }
  HttpHarness harness({}, {}, std::chrono::microseconds(200), ApiOptions{"", "http://other"});
  HttpClient client = harness.client();
  client.send(HttpClient::request("GET", "/health", "", origin));
  EXPECT_FALSE(client.read_response().headers.contains("access-control-allow-origin"));
}

// Streamed or not, in the prompt or in the answer, with an orderly end, a reset, or after it has
// ended its input.
TEST(Connection, AClientThatLeavesCancelsItsGeneration) {
  bool in_prompt = false;
  HttpHarness harness([&](const GenerationRequest&, int) {
    Script script = says("again and ", false);
    if (in_prompt) script.prompt_steps = 1 << 30;
    return script;
  });
  for (const int way : {0, 1, 2, 3, 4, 5, 6, 7}) {
    in_prompt = (way & 1) != 0;
    HttpClient client = harness.client();
    client.send(HttpClient::request("POST", kChat, chat_text("Hi", (way & 2) != 0, 1 << 19)));
    ASSERT_TRUE(eventually([&] { return harness.engine.live() == 1; }));
    (way & 4) != 0 ? client.reset() : client.close();
    EXPECT_TRUE(eventually([&] { return harness.engine.live() == 0; })) << way;
  }
  EXPECT_TRUE(eventually([&] { return harness.server->connections() == 0; }));
  EXPECT_EQ(harness.server->open_exchanges(), 0);
}

// Behind its request waits another one, or an empty line.
TEST(Connection, AClientThatLeavesIsNoticedBehindWhatItSentAhead) {
  HttpHarness harness(talking());
  for (const std::string& ahead : {HttpClient::request("GET", "/health", ""), std::string("\r\n"),
                                   HttpClient::request("POST", kChat, std::string(20'000, ' '))}) {
    HttpClient client = harness.client();
    client.send(HttpClient::request("POST", kChat, chat_text("Hi", false, 1 << 19)) + ahead);
    ASSERT_TRUE(eventually([&] { return harness.engine.live() == 1; }));
    client.close();
    EXPECT_TRUE(eventually([&] { return harness.engine.live() == 0; })) << ahead.substr(0, 20);
  }
  EXPECT_TRUE(eventually([&] { return harness.server->connections() == 0; }));
}

TEST(Connection, EmptyLinesBeforeARequestAreSkipped) {
  HttpHarness harness(saying("Hello"));
  HttpClient client = harness.client();
  for (int i = 0; i < 2; ++i) {
    client.send("\r\n\r\n" + HttpClient::request("POST", kChat, chat_text("Hi")) + "\r\n");
    EXPECT_NE(client.read_response().body.find("Hello"), std::string::npos);
  }
  client.send("GET http://anywhere:80/health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 200);
}

TEST(Connection, AClientThatHasClosedItsSendingSideIsAnswered) {
  HttpHarness harness(saying("Hello"), {}, std::chrono::milliseconds(20));
  for (const bool stream : {false, true}) {
    HttpClient client = harness.client();
    client.send(HttpClient::request("POST", kChat, chat_text("Hi", stream)));
    client.end_sending();
    const ClientResponse response = client.read_response();
    EXPECT_EQ(response.status, 200);
    EXPECT_TRUE(response.complete);
    EXPECT_NE(response.body.find("Hello"), std::string::npos);
    EXPECT_TRUE(client.ended());
  }
  HttpClient client = harness.client();
  client.send(HttpClient::request("GET", "/health", "") +
              HttpClient::request("POST", kChat, chat_text("Hi")) +
              HttpClient::request("GET", "/version", ""));
  client.end_sending();
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_NE(client.read_response().body.find("Hello"), std::string::npos);
  EXPECT_NE(client.read_response().body.find("version"), std::string::npos);
  EXPECT_TRUE(client.ended());

  HttpClient old = harness.client();
  const std::string body = chat_text("Hi");
  old.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\n\r\n" + body);
  old.end_sending();
  EXPECT_NE(old.read_response().body.find("Hello"), std::string::npos);

  HttpClient half = harness.client();
  half.send("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{");
  half.end_sending();
  EXPECT_EQ(half.read_response().status, 0);
  EXPECT_TRUE(eventually([&] { return harness.server->connections() == 0; }));
}

TEST(Connection, TheServerEndsWhileClientsStream) {
  auto harness = std::make_unique<HttpHarness>(talking());
  std::vector<HttpClient> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(harness->client());
    clients.back().send(HttpClient::request("POST", kChat, chat_text("Hi", true, 1 << 19)));
  }
  ASSERT_TRUE(eventually([&] { return harness->engine.live() == 5; }));
  harness.reset();
  for (HttpClient& client : clients) EXPECT_TRUE(client.ended());
}

TEST(Connection, DrainingRefusesNewRequestsAndFinishesOldOnes) {
  HttpHarness harness(talking(), {}, std::chrono::milliseconds(1));
  HttpClient old = harness.client();
  old.send(HttpClient::request("POST", kChat, chat_text("Hi", true, 100)));
  ASSERT_TRUE(eventually([&] { return harness.engine.live() == 1; }));
  harness.server->drain();
  HttpClient late = harness.client();
  const ClientResponse refused = late.post(kChat, chat_text("Hi"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_EQ(late.get("/health").status, 503);
  const ClientResponse response = old.read_response();
  EXPECT_TRUE(response.complete);
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(eventually([&] { return harness.server->open_exchanges() == 0; }));
}

TEST(Connection, APortInUseIsRefusedByItsFlag) {
  HttpHarness harness;
  HttpServerOptions options;
  options.port = harness.server->port();
  const auto second =
      HttpServer::start(options, harness.engine, tiny_frontend(), tiny_served(), {});
  ASSERT_FALSE(second.ok());
  EXPECT_TRUE(second.error().message.starts_with("--port: ")) << second.error().message;
  options.host = "no.such.host.invalid";
  const auto third = HttpServer::start(options, harness.engine, tiny_frontend(), tiny_served(), {});
  ASSERT_FALSE(third.ok());
  EXPECT_TRUE(third.error().message.starts_with("--host: ")) << third.error().message;
}

}  // namespace
}  // namespace replayssm::server
