#include "serve_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/memory_needs.h"
#include "replay/memory_plan.h"
#include "server/log.h"
#include "text/tool_call_parser.h"

namespace replayssm::cli {
namespace {

constexpr int kLargest = 1 << 30;
constexpr int kDefaultRunningRequests = 32;

std::vector<std::string> tool_call_parsers() {
  std::vector<std::string> names = {"auto", "none"};
  for (const std::string_view name : ToolCallParser::formats()) names.emplace_back(name);
  return names;
}

void add_address(CLI::App& command, ServeFlags& flags) {
  command
      .add_option("--host", flags.host, "Address to listen on; 0.0.0.0 for all of the machine's")
      ->capture_default_str();
  command.add_option("--port", flags.port, "Port to listen on; 0 takes a free one and says which")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  // From the environment, other users of the machine do not see it.
  command
      .add_option("--api-key", flags.api_key,
                  "Clients have to send it (Authorization: Bearer KEY). Default: none")
      ->envname("REPLAYSSM_API_KEY");
  command.add_option("--served-model-name", flags.served_model_name,
                     "The model's name in requests. Default: the name of its folder");
  command.add_option("--allowed-origin", flags.allowed_origin,
                     "Origin of pages served elsewhere that may call this server (CORS); * is any. "
                     "Default: none");
}

void add_scheduling(CLI::App& command, ServeFlags& flags) {
  command
      .add_option("--mem-fraction-static", flags.mem_fraction,
                  "Part of the available memory that the plan may use")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str();
  command
      .add_option("--max-running-requests", flags.max_running_requests,
                  "Requests that run at once; 0 is as many as fit. Default: 32, or as many as have "
                  "room for their windows in a step of --chunked-prefill-size tokens")
      ->check(CLI::Range(0, kLargest));
  command
      .add_option("--max-queued-requests", flags.max_queued_requests,
                  "Requests that may wait; more are answered 429. Default: no limit")
      ->check(CLI::Range(0, kLargest));
  command
      .add_option("--context-length", flags.context_length,
                  "Tokens of the longest request, output included. Default: the model's")
      ->check(CLI::Range(1, kLargest));
  command
      .add_option("--chunked-prefill-size", flags.chunked_prefill_size,
                  "Tokens of a step, and so of a prompt chunk, at most")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      .add_option("--schedule-policy", flags.schedule_policy,
                  "fcfs: first come, first served. priority: the request field priority, larger "
                  "first")
      ->check(CLI::IsMember({"fcfs", "priority"}))
      ->capture_default_str();
}

void add_cache(CLI::App& command, ServeFlags& flags) {
  command.add_option("--page-size", flags.page_size, "Tokens of a page of keys and values")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      .add_option("--mamba-track-interval", flags.track_interval,
                  "Largest distance in tokens of the checkpoints kept along prompt and output; a "
                  "multiple of --linear-replayssm-cache-len")
      ->check(CLI::Range(1, kLargest))
      ->capture_default_str();
  command.add_flag("--disable-radix-cache", flags.disable_cache, "Reuse no prompt prefixes");
  command.add_option("--hicache-size", flags.host_cache_size,
                     "Memory for cache entries and sequences that had to make room, for example "
                     "2GiB. Default: none");
  CLI::Option* enable = command.add_flag("--enable-linear-replayssm", flags.enable_replay,
                                         "Log and fold the recurrent state; the default");
  enable->excludes(command.get_option("--disable-linear-replayssm"));
}

void add_text(CLI::App& command, ServeFlags& flags) {
  command
      .add_option("--chat-template", flags.chat_template,
                  "File of a chat template. Default: the checkpoint's")
      ->check(CLI::ExistingFile);
  command
      .add_option("--tool-call-parser", flags.tool_call_parser,
                  "Format of tool calls. auto: as the chat template shows")
      ->check(CLI::IsMember(tool_call_parsers()))
      ->capture_default_str();
  command
      .add_option("--reasoning-parser", flags.reasoning_parser,
                  "Format of reasoning. auto: as the chat template shows")
      ->check(CLI::IsMember({"auto", "none", "qwen3"}))
      ->capture_default_str();
  command.add_option("--random-seed", flags.random_seed,
                     "First seed of requests that bring none. Default: random ones");
  command.add_option("--log-level", flags.log_level, "Least level of lines on standard error")
      ->check(CLI::IsMember(
          std::vector<std::string>(std::begin(server::kLogLevels), std::end(server::kLogLevels))))
      ->capture_default_str();
  command
      .add_option("--shutdown-timeout", flags.shutdown_timeout,
                  "Seconds that running requests have left after SIGTERM or Ctrl-C")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
}

}  // namespace

void ServeFlags::add_to(CLI::App& command) {
  engine.add_to(command);
  engine.add_load_format_to(command);
  engine.add_speculation_to(command);
  add_address(command, *this);
  add_scheduling(command, *this);
  add_cache(command, *this);
  add_text(command, *this);
}

Result<ServiceOptions> ServeFlags::service_options() const {
  auto engine_options = engine.options();
  if (!engine_options) return engine_options.error();
  const auto host_cache = host_cache_size.empty() ? Result<std::int64_t>(std::int64_t{0})
                                                  : parse_bytes("--hicache-size", host_cache_size);
  if (!host_cache) return host_cache.error();
  ServiceOptions options;
  options.engine = std::move(*engine_options);
  options.engine.memory_fraction = mem_fraction;
  options.engine.context_length = context_length;
  options.engine.step_tokens = chunked_prefill_size;
  const auto resolved = resolve_speculation(options.engine);
  if (!resolved) return resolved.error();
  const int room = std::max(1, chunked_prefill_size / resolved->window_max);
  options.engine.max_running_requests =
      max_running_requests.value_or(std::min(kDefaultRunningRequests, room));
  options.engine.page_tokens = page_size;
  options.policy =
      schedule_policy == "priority" ? SchedulePolicy::priority : SchedulePolicy::first_come;
  options.max_queued_requests = max_queued_requests;
  options.prefix_cache = !disable_cache;
  options.track_interval = track_interval;
  options.host_cache_bytes = *host_cache;
  return options;
}

server::FrontendOptions ServeFlags::frontend_options(const std::filesystem::path& model) const {
  return {model, chat_template, tool_call_parser, reasoning_parser, random_seed};
}

server::HttpServerOptions ServeFlags::http_options() const {
  server::HttpServerOptions options;
  options.host = host;
  options.port = static_cast<std::uint16_t>(port);
  return options;
}

server::ApiOptions ServeFlags::api_options() const { return {api_key, allowed_origin}; }

std::string ServeFlags::model_name(const std::filesystem::path& model) const {
  if (!served_model_name.empty()) return served_model_name;
  const std::filesystem::path path = std::filesystem::absolute(model).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

std::vector<std::string> given_flags(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || option->get_name() == "--help") continue;
    const bool secret = option->get_name() == "--api-key";
    const bool has_value = option->get_expected_max() > 0;
    flags.push_back(option->get_name() + (!has_value ? ""
                                          : secret   ? " ***"
                                                     : " " + option->as<std::string>()));
  }
  return flags;
}

}  // namespace replayssm::cli
