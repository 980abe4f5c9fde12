// What is served: facts that do not change while the server runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "engine/engine_service.h"
#include "model/config.h"
#include "replay/memory_plan.h"

namespace replayssm::server {

struct ServedModel {
  std::string name;  // the id of /v1/models
  std::filesystem::path path;
  ModelConfig config;
  ServiceOptions options;
  MemoryPlan plan;
  int context_length = 0;
  int threads = 0;
  std::int64_t created = 0;  // seconds since 1970
};

}  // namespace replayssm::server
