#include "grammar/string_format.h"

#include <fmt/format.h>

namespace replayssm::grammar {
namespace {

// RFC 3339, full-date and full-time.
constexpr std::string_view kDate =
    "[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"
    "02-(0[1-9]|1[0-9]|2[0-8]))";
constexpr std::string_view kTime =
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?"
    "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
// RFC 4122 in its text form.
constexpr std::string_view kUuid =
    "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
constexpr std::string_view kIpv4 =
    "((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\\.){3}"
    "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
// The addresses that people have: dot-separated atoms, a host name with a dot.
constexpr std::string_view kEmail =
    "[A-Za-z0-9_+-]{1,60}(\\.[A-Za-z0-9_+-]{1,60}){0,3}@"
    "([A-Za-z0-9]{1,30}(-[A-Za-z0-9]{1,20}){0,3}\\.){1,4}[A-Za-z]{2,20}";

}  // namespace

std::optional<std::string> pattern_of_format(std::string_view format) {
  const auto whole = [](std::string_view body) { return fmt::format("^({})$", body); };
  if (format == "date") return whole(kDate);
  if (format == "time") return whole(kTime);
  if (format == "date-time") return whole(fmt::format("{}T{}", kDate, kTime));
  if (format == "uuid") return whole(kUuid);
  if (format == "ipv4") return whole(kIpv4);
  if (format == "email") return whole(kEmail);
  return std::nullopt;
}

}  // namespace replayssm::grammar
