#include "server/routes.h"

#include "server/chat_completions.h"
#include "server/completions.h"
#include "server/health.h"
#include "server/metrics.h"
#include "server/model_endpoints.h"
#include "server/page.h"
#include "server/state.h"
#include "server/tokenize.h"

namespace replayssm::server {
namespace {

// Known, and not built: clients that probe for it get a plain answer.
std::optional<ApiError> not_built(const std::shared_ptr<ApiContext>&, const HttpRequest& request,
                                  const std::shared_ptr<Exchange>&) {
  return not_implemented(request.method + " " + request.path);
}

bool matches(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with("/*")) return pattern == path;
  const std::string_view front = pattern.substr(0, pattern.size() - 1);
  return path.size() > front.size() && path.starts_with(front);
}

}  // namespace

const std::vector<Route>& routes() {
  using Work = Route::Work;
  using Access = Route::Access;
  static const std::vector<Route> all = {
      {"GET", "/", page, Work::quick, Access::open},
      {"GET", "/health", health, Work::quick, Access::open},
      {"GET", "/ready", health, Work::quick, Access::open},
      {"GET", "/health_generate", health_generate, Work::text},
      {"GET", "/metrics", metrics},
      {"GET", "/state", state},
      {"GET", "/get_server_info", server_info},
      {"GET", "/server_info", server_info},
      {"GET", "/version", version},
      {"POST", "/flush_cache", flush_cache, Work::text},
      {"GET", "/flush_cache", flush_cache, Work::text},
      {"GET", "/v1/models", list_models},
      {"GET", "/v1/models/*", get_model},
      {"POST", "/v1/chat/completions", chat_completions, Work::text},
      {"POST", "/v1/completions", completions, Work::text},
      {"POST", "/generate", generate, Work::text},
      {"POST", "/tokenize", tokenize, Work::text},
      {"POST", "/detokenize", detokenize, Work::text},
      {"GET", "/tokenizer_info", tokenizer_info},
      {"POST", "/apply-template", apply_template, Work::text},
      {"POST", "/v1/responses", not_built},
      {"POST", "/v1/messages", not_built},
      {"POST", "/v1/messages/count_tokens", not_built},
      {"POST", "/v1/embeddings", not_built},
      {"POST", "/start_profile", not_built},
      {"POST", "/stop_profile", not_built},
      {"GET", "/props", not_built},
      {"GET", "/slots", not_built},
  };
  return all;
}

RouteMatch find_route(std::string_view method, std::string_view path) {
  RouteMatch match;
  for (const Route& route : routes()) {
    if (!matches(route.path, path)) continue;
    match.allowed += (match.allowed.empty() ? "" : ", ") + std::string(route.method);
    if (route.method == (method == "HEAD" ? "GET" : method)) match.route = &route;
  }
  return match;
}

}  // namespace replayssm::server
