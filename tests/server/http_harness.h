// A server on a free port of 127.0.0.1 with a scripted engine.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "api_harness.h"
#include "http_client.h"
#include "server/http_server.h"

namespace replayssm::server {

struct HttpHarness {
  explicit HttpHarness(ScriptedEngine::Writer writer = {}, HttpLimits limits = {},
                       std::chrono::microseconds pause = std::chrono::microseconds(200),
                       ApiOptions api = {})
      : engine(std::move(writer), 1 << 20) {
    HttpServerOptions options;
    options.limits = limits;
    server =
        HttpServer::start(options, engine, tiny_frontend(), tiny_served(1 << 20), std::move(api))
            .value();
    engine.run(pause);
  }

  HttpClient client() const { return HttpClient(server->port()); }

  ScriptedEngine engine;
  std::unique_ptr<HttpServer> server;  // ends first
};

// Goes on until max_tokens.
inline ScriptedEngine::Writer talking() {
  return [](const GenerationRequest&, int) { return says("again and ", false); };
}

inline std::string chat_text(std::string_view message, bool stream = false, int max_tokens = 0) {
  Json body = chat_body(message, stream);
  if (max_tokens > 0) body["max_tokens"] = max_tokens;
  return to_text(body);
}

}  // namespace replayssm::server
