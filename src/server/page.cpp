#include "server/page.h"

#include <string_view>

namespace replayssm::server {

// Made from page/index.html by embed_page.cmake.
extern const unsigned char kPageBytes[];
extern const std::size_t kPageSize;

std::optional<ApiError> page(const std::shared_ptr<ApiContext>&, const HttpRequest&,
                             const std::shared_ptr<Exchange>& exchange) {
  HttpResponse response;
  response.content_type = "text/html; charset=utf-8";
  response.body.assign(reinterpret_cast<const char*>(kPageBytes), kPageSize);
  // The page needs nothing from elsewhere, and nothing that a model writes may load anything.
  response.headers.emplace_back(
      "Content-Security-Policy",
      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src "
      "'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  response.headers.emplace_back("X-Content-Type-Options", "nosniff");
  response.headers.emplace_back("Cache-Control", "no-cache");
  exchange->respond(std::move(response));
  return std::nullopt;
}

}  // namespace replayssm::server
