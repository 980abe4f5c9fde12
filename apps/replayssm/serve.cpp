// replayssm serve: an OpenAI-compatible HTTP server.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "command.h"
#include "interrupt.h"
#include "replay/memory_plan.h"
#include "serve_flags.h"
#include "server/log.h"
#include "table.h"
#include "terminal.h"

namespace replayssm::cli {
namespace {

using Clock = std::chrono::steady_clock;
using server::LogLevel;

// How often signals and the engine's health are looked at.
constexpr std::chrono::milliseconds kWatch{100};

void print_plan(const MemoryPlan& plan) {
  std::vector<std::vector<std::string>> rows;
  for (const MemoryLine& line : plan.lines) {
    rows.push_back({line.name, format_bytes(line.bytes), line.note});
  }
  rows.push_back({"sum", format_bytes(plan.used), ""});
  rows.push_back({"budget", format_bytes(plan.budget), "--mem-fraction-static"});
  fmt::print(stderr, "{}", format_table({"memory", "bytes", "how"}, rows, {1}));
}

void log_start(const ServeFlags& flags, const CLI::App& command, const EngineService& service,
               const server::Frontend& frontend) {
  if (server::log_level_named(flags.log_level) <= LogLevel::info) print_plan(service.plan());
  const std::vector<std::string> given = given_flags(command);
  log(LogLevel::info, "flags beside the defaults: {}",
      given.empty() ? "none" : fmt::format("{}", fmt::join(given, " ")));
  log(LogLevel::info,
      "{} requests at once, contexts of {} tokens, {} threads; tool calls: {}, reasoning: {}",
      service.plan().rows, service.context_length(), service.threads(), frontend.tool_call_parser(),
      frontend.reasoning_parser());
  if (!service.options().prefix_cache) {
    log(LogLevel::info, "prefix cache: off, by --disable-radix-cache");
  } else if (service.options().engine.recurrence == Recurrence::packed) {
    log(LogLevel::info,
        "prefix cache: an entry serves exactly its own depth, because of "
        "--disable-linear-replayssm");
  }
  if (const Status reserved = service.host_cache_reserved(); !reserved.ok()) {
    log(LogLevel::warning,
        "--hicache-size {}: not to be had at once ({}); it is got piece by piece when it is "
        "needed, "
        "and steps wait for that",
        flags.host_cache_size, reserved.error().message);
  }
  if (flags.api_key.empty() && flags.host != "127.0.0.1" && flags.host != "localhost") {
    log(LogLevel::warning, "{} may be reached from elsewhere and no --api-key is set", flags.host);
  }
}

// Until a signal comes; then until what runs has ended, or its time is over.
int watch(const ServeFlags& flags, EngineService& service, server::HttpServer& http) {
  const InterruptGuard interrupt;
  while (!interrupt.interrupted()) {
    if (const auto failure = service.failure()) {
      log(LogLevel::error, "the engine has failed: {}", failure->message);
      return kEngineFailed;
    }
    std::this_thread::sleep_for(kWatch);
  }
  http.drain();
  log(LogLevel::info, "draining: new requests are refused, running ones have {} s",
      flags.shutdown_timeout);
  const auto end = Clock::now() + std::chrono::seconds(flags.shutdown_timeout);
  while (Clock::now() < end && !(service.idle() && http.open_exchanges() == 0)) {
    std::this_thread::sleep_for(kWatch);
  }
  log(LogLevel::info, "ended with {} responses open", http.open_exchanges());
  return kSuccess;
}

int serve(const ServeFlags& flags, const CLI::App& command) {
  server::set_log_level(server::log_level_named(flags.log_level));
  const auto options = flags.service_options();
  if (!options) return fail(options.error());
  const std::filesystem::path& path = options->engine.model_path;
  const auto config = load_config(path);
  if (!config) return fail(config.error());
  const auto frontend = server::Frontend::load(flags.frontend_options(path), *config);
  if (!frontend) return fail(frontend.error());
  const auto service = EngineService::start(*options);
  if (!service) return fail(service.error());
  log_start(flags, command, **service, **frontend);

  server::ServedModel model;
  model.name = flags.model_name(path);
  model.path = path;
  model.config = *config;
  model.options = (*service)->options();
  model.plan = (*service)->plan();
  model.context_length = (*service)->context_length();
  model.threads = (*service)->threads();
  model.created = server::unix_time();
  server::ServiceEngine engine(**service);
  const auto http = server::HttpServer::start(flags.http_options(), engine, **frontend, model,
                                              flags.api_options());
  if (!http) return fail(http.error());
  const bool is_ipv6 = flags.host.find(':') != std::string::npos;  // bracketed in a URL
  print_now(fmt::format("{} is served at http://{}:{}\n", model.name,
                        is_ipv6 ? fmt::format("[{}]", flags.host) : flags.host, (*http)->port()));
  return watch(flags, **service, **http);
}

}  // namespace

void add_serve(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* command =
      app.add_subcommand("serve", "Serve a model over HTTP, as the OpenAI API does");
  flags->add_to(*command);
  command->footer(
      "SIGTERM and Ctrl-C refuse new requests, finish running ones and exit with 0; a second "
      "signal "
      "ends at once. Exit code 70: the engine failed.\n"
      "Example: replayssm serve --port 8000");
  command->callback([flags, command, &exit_code] { exit_code = serve(*flags, *command); });
}

}  // namespace replayssm::cli
