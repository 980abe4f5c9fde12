#include "server/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>

namespace replayssm::server {
namespace {

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::off:
      break;
  }
  return spdlog::level::off;
}

spdlog::logger& logger() {
  static const auto made = [] {
    auto log = std::make_shared<spdlog::logger>(
        "replayssm", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    log->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
    log->flush_on(spdlog::level::trace);
    return log;
  }();
  return *made;
}

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(level_of(level)); }

LogLevel log_level_named(std::string_view name) {
  const auto found = std::find(std::begin(kLogLevels), std::end(kLogLevels), name);
  return static_cast<LogLevel>(found - std::begin(kLogLevels));
}

void log_line(LogLevel level, std::string_view line) {
  std::string escaped;
  for (const char c : line) {
    if (c == '\n' || c == '\r') {
      escaped += c == '\n' ? "\\n" : "\\r";
    } else {
      escaped += c;
    }
  }
  logger().log(level_of(level), "{}", escaped);
}

}  // namespace replayssm::server
