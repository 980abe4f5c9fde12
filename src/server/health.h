// GET /health, /ready, /health_generate; POST /flush_cache.
#pragma once

#include "server/api.h"

namespace replayssm::server {

// 200 while requests can be served, 503 while draining and after the engine has failed.
std::optional<ApiError> health(const std::shared_ptr<ApiContext>& context,
                               const HttpRequest& request,
                               const std::shared_ptr<Exchange>& exchange);

// The same, after one token was really generated.
std::optional<ApiError> health_generate(const std::shared_ptr<ApiContext>& context,
                                        const HttpRequest& request,
                                        const std::shared_ptr<Exchange>& exchange);

// Drops what the prefix cache holds and nobody uses.
std::optional<ApiError> flush_cache(const std::shared_ptr<ApiContext>& context,
                                    const HttpRequest& request,
                                    const std::shared_ptr<Exchange>& exchange);

}  // namespace replayssm::server
