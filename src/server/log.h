// Lines for the person who runs the server, on standard error.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "core/result.h"

namespace replayssm::server {

enum class LogLevel { debug, info, warning, error, off };

// The names that --log-level accepts.
inline constexpr std::string_view kLogLevels[] = {"debug", "info", "warning", "error", "off"};

void set_log_level(LogLevel level);
// Precondition: one of kLogLevels.
LogLevel log_level_named(std::string_view name);

// Callable from any thread. One line each; line breaks inside are escaped.
void log_line(LogLevel level, std::string_view line);

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace replayssm::server
