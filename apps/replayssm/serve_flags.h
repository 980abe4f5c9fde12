// The flags of `replayssm serve`. Names and meanings are those that users of SGLang know.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/engine_service.h"
#include "engine_flags.h"
#include "server/frontend.h"
#include "server/http_server.h"

namespace replayssm::cli {

struct ServeFlags {
  EngineFlags engine;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string api_key;
  std::string served_model_name;
  std::string allowed_origin;
  double mem_fraction = 0.8;
  std::optional<int> max_running_requests;
  std::optional<int> max_queued_requests;
  int context_length = 0;
  int chunked_prefill_size = 256;
  int page_size = 16;
  int track_interval = 256;
  std::string host_cache_size;
  bool disable_cache = false;
  bool enable_replay = false;
  std::string schedule_policy = "fcfs";
  std::string chat_template;
  std::string tool_call_parser = "auto";
  std::string reasoning_parser = "auto";
  std::optional<std::uint64_t> random_seed;
  std::string log_level = "info";
  int shutdown_timeout = 30;

  void add_to(CLI::App& command);

  // What the flags ask for. Errors name the flag, the value and what is accepted.
  Result<ServiceOptions> service_options() const;
  server::FrontendOptions frontend_options(const std::filesystem::path& model) const;
  server::HttpServerOptions http_options() const;
  server::ApiOptions api_options() const;
  // --served-model-name, or the name of the model's folder.
  std::string model_name(const std::filesystem::path& model) const;
};

// "--port 0", .. of the flags that were given, in the order of the help; keys are not shown.
std::vector<std::string> given_flags(const CLI::App& command);

}  // namespace replayssm::cli
