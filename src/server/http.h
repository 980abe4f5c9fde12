// Requests and responses without sockets, so that everything behind them can be tested without any.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server/api_error.h"
#include "server/json.h"

namespace replayssm::server {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // without the query, percent-encoding as sent
  std::string query;
  std::string body;
  // Headers that something here reads; empty where there is none.
  std::string authorization;
  std::string origin;
  std::string request_id;  // x-request-id as the client sent it, or made
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // beside the usual ones
};

HttpResponse json_response(const Json& body, int status = 200);
HttpResponse error_response(const ApiError& error);

// Where the answer to one request goes: either respond() once, or begin_stream(), any number of
// send() and end_stream(). After the client has gone everything is accepted and dropped.
//
// post() may be called from any thread; everything else only from what post() runs, or from the
// call that handed the exchange out. What one exchange posts runs one after another, in order.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual void post(std::function<void()> work) = 0;

  virtual void respond(HttpResponse response) = 0;
  // A response of server-sent events with status 200.
  virtual void begin_stream() = 0;
  virtual void send(std::string events) = 0;
  enum class After { keep_open, close };  // of the connection
  virtual void end_stream(After after) = 0;

  // Called once if the client goes away before its response is complete.
  virtual void on_closed(std::function<void()> callback) = 0;
  // Called again and again while the response is not complete and nothing was sent for a while.
  virtual void on_silence(std::function<void()> callback) = 0;
  virtual bool closed() const = 0;
};

// A server-sent event / a comment, which clients skip.
std::string sse_event(const Json& data);
inline constexpr const char* kSseDone = "data: [DONE]\n\n";
inline constexpr const char* kSsePing = ": ping\n\n";

}  // namespace replayssm::server
