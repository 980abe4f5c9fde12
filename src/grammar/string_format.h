// The values of the keyword "format" that are enforced, as patterns.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace replayssm::grammar {

// A pattern for regex.h whose every match is of the format; nothing for a format that is not known.
// Narrower than the format where that keeps it regular: February has 28 days, years begin at 1000.
std::optional<std::string> pattern_of_format(std::string_view format);

// For error messages.
inline constexpr std::string_view kFormats = "date, time, date-time, uuid, ipv4, email";

}  // namespace replayssm::grammar
