// GET /metrics: Prometheus text. vLLM's names with the prefix "replayssm:", and our own.
#pragma once

#include <string>

#include "server/api.h"

namespace replayssm::server {

std::optional<ApiError> metrics(const std::shared_ptr<ApiContext>& context,
                                const HttpRequest& request,
                                const std::shared_ptr<Exchange>& exchange);

std::string metrics_text(const ServedModel& model, const EngineState& state,
                         const RequestCounts& requests, bool healthy);

}  // namespace replayssm::server
