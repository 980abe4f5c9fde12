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

  // The answer; its status is expected to be 200.
  Json post(std::string_view path, const Json& body) const {
    const ClientResponse response = client().post(path, to_text(body));
    EXPECT_EQ(response.status, 200) << response.body;
    const auto parsed = parse_json(response.body);
    return parsed.ok() ? *parsed : Json();
  }
  Json chat(const Json& body) const { return post(kChat, body); }
  Json completion(const Json& body) const { return post(kText, body); }
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
