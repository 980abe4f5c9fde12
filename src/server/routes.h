// What there is at which path.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "server/api.h"

namespace replayssm::server {

struct Route {
  // How its handler is run.
  enum class Work {
    quick,  // at once, in the exchange's sequence: answers in microseconds
    text,   // where text work is run
  };
  // Without a key, also where one is set.
  enum class Access { key, open };

  // Answers through the exchange, or returns the error to answer with.
  using Handler = std::optional<ApiError> (*)(const std::shared_ptr<ApiContext>& context,
                                              const HttpRequest& request,
                                              const std::shared_ptr<Exchange>& exchange);

  std::string_view method;
  std::string_view path;  // "/*" at the end: one more segment
  Handler handler;
  Work work = Work::quick;
  Access access = Access::key;
};

// All of them; constant.
const std::vector<Route>& routes();

struct RouteMatch {
  const Route* route = nullptr;  // null: the path or the method is wrong
  std::string allowed;           // methods of the path, joined by ", "; empty: no such path
};
// HEAD is answered as GET is.
RouteMatch find_route(std::string_view method, std::string_view path);

}  // namespace replayssm::server
