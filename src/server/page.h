// GET /: the page in src/server/page, embedded when the program is built.
#pragma once

#include "server/api.h"

namespace replayssm::server {

std::optional<ApiError> page(const std::shared_ptr<ApiContext>& context, const HttpRequest& request,
                             const std::shared_ptr<Exchange>& exchange);

}  // namespace replayssm::server
