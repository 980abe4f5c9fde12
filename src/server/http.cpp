#include "server/http.h"

namespace replayssm::server {

HttpResponse json_response(const Json& body, int status) {
  HttpResponse response;
  response.status = status;
  response.body = to_text(body);
  return response;
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response = json_response(body_of(error), error.status);
  if (error.retry_after > 0) {
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  }
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

std::string sse_event(const Json& data) { return "data: " + to_text(data) + "\n\n"; }

}  // namespace replayssm::server
