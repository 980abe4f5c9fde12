// POST /v1/completions, and SGLang's POST /generate.
#pragma once

#include "server/api.h"

namespace replayssm::server {

// Text work. Either an error, with nothing begun, or an answer is on its way.
std::optional<ApiError> completions(const std::shared_ptr<ApiContext>& context,
                                    const HttpRequest& http,
                                    const std::shared_ptr<Exchange>& exchange);
std::optional<ApiError> generate(const std::shared_ptr<ApiContext>& context,
                                 const HttpRequest& http,
                                 const std::shared_ptr<Exchange>& exchange);

}  // namespace replayssm::server
