// The sockets: listens, reads requests, writes responses. What is answered is Api's business.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "server/api.h"

namespace replayssm::server {

struct HttpLimits {
  std::size_t header_bytes = 64 << 10;
  std::size_t body_bytes = 32 << 20;
  // A client that has taken nothing for `stall` while more than so many bytes wait for it is
  // dropped.
  std::size_t outgoing_bytes = 8 << 20;
  std::chrono::milliseconds stall{1'000};
  int connections = 4096;
  std::chrono::milliseconds idle{75'000};     // between requests, and for a request's header
  std::chrono::milliseconds body{60'000};     // for the whole body
  std::chrono::milliseconds write{30'000};    // in which a client takes at least something
  std::chrono::milliseconds silence{15'000};  // Exchange::on_silence
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free one
  int io_threads = 2;
  int text_threads = 2;
  HttpLimits limits;
};

// Owns its threads. All members may be called from any thread but its own.
class HttpServer {
 public:
  // Binds, and serves at once. Engine and frontend outlive the server. Errors name --host or
  // --port.
  static Result<std::unique_ptr<HttpServer>> start(const HttpServerOptions& options,
                                                   GenerationEngine& engine,
                                                   const Frontend& frontend, ServedModel model,
                                                   ApiOptions api);
  // Closes all connections and joins the threads.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const;
  // Refuses new work, finishes what there is.
  void drain();
  // Responses that are not completely written.
  int open_exchanges() const;
  int connections() const;

 private:
  struct Parts;
  explicit HttpServer(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace replayssm::server
