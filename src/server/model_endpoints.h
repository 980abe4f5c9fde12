// GET /v1/models, /v1/models/{id}, /get_server_info, /version.
#pragma once

#include "server/api.h"

namespace replayssm::server {

std::optional<ApiError> list_models(const std::shared_ptr<ApiContext>& context,
                                    const HttpRequest& request,
                                    const std::shared_ptr<Exchange>& exchange);

std::optional<ApiError> get_model(const std::shared_ptr<ApiContext>& context,
                                  const HttpRequest& request,
                                  const std::shared_ptr<Exchange>& exchange);

// The options in effect, by the names of their flags, and "internal_states" as SGLang's benchmark
// reads it.
std::optional<ApiError> server_info(const std::shared_ptr<ApiContext>& context,
                                    const HttpRequest& request,
                                    const std::shared_ptr<Exchange>& exchange);

std::optional<ApiError> version(const std::shared_ptr<ApiContext>& context,
                                const HttpRequest& request,
                                const std::shared_ptr<Exchange>& exchange);

}  // namespace replayssm::server
