// A server with the engine and the model of models/tiny; one for all tests of a program, because
// loading takes a second.
#pragma once

#include <memory>

#include "api_harness.h"
#include "http_client.h"
#include "server/http_server.h"

namespace replayssm::server {

struct RealServer {
  std::unique_ptr<EngineService> service;
  std::unique_ptr<ServiceEngine> engine;
  std::unique_ptr<HttpServer> http;

  HttpClient client() const { return HttpClient(http->port()); }

  Json chat(const Json& body) const {
    const ClientResponse response = client().post("/v1/chat/completions", to_text(body));
    EXPECT_EQ(response.status, 200) << response.body;
    const auto parsed = parse_json(response.body);
    return parsed.ok() ? *parsed : Json();
  }
  Json completion(const Json& body) const {
    const ClientResponse response = client().post("/v1/completions", to_text(body));
    EXPECT_EQ(response.status, 200) << response.body;
    const auto parsed = parse_json(response.body);
    return parsed.ok() ? *parsed : Json();
  }

  // Whether `condition` comes true within 20 s.
  template <class Condition>
  static bool eventually(const Condition& condition) {
    for (int i = 0; i < 4000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
};

inline std::unique_ptr<RealServer> start_real_server(ServiceOptions options) {
  auto real = std::make_unique<RealServer>();
  options.engine.model_path = tiny_model();
  real->service = EngineService::start(options).value();
  real->engine = std::make_unique<ServiceEngine>(*real->service);
  ServedModel model = tiny_served(real->service->context_length());
  model.options = real->service->options();
  model.plan = real->service->plan();
  model.threads = real->service->threads();
  real->http = HttpServer::start({}, *real->engine, tiny_frontend(), model, {}).value();
  return real;
}

inline ServiceOptions real_options() {
  ServiceOptions options;
  options.engine.max_running_requests = 4;
  options.engine.context_length = 1024;
  options.engine.threads = 2;
  return options;
}

inline const RealServer& real_server() {
  static const auto real = start_real_server(real_options());
  return *real;
}

}  // namespace replayssm::server
