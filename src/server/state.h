// GET /state: the live numbers of the engine, for the page and for people. docs/server.md documents
// its shape.
#pragma once

#include "server/api.h"

namespace replayssm::server {

std::optional<ApiError> state(const std::shared_ptr<ApiContext>& context,
                              const HttpRequest& request,
                              const std::shared_ptr<Exchange>& exchange);

Json state_json(const ServedModel& model, const EngineState& state);

}  // namespace replayssm::server
