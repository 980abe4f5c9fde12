#include "load/http_url.h"

#include <charconv>

namespace replayssm::load {
namespace {

constexpr std::string_view kScheme = "http://";

bool is_port(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc{} && end == text.data() + text.size() && port >= 1 && port <= 65535;
}

bool is_plain(std::string_view text) {
  return text.find_first_of("@?# \t\r\n") == std::string_view::npos;
}

}  // namespace

std::string HttpUrl::authority() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == "80" ? name : name + ":" + port;
}

Result<HttpUrl> parse_url(std::string_view text) {
  const Error wrong = refuse("--url", text, "http://HOST[:PORT][/PATH]; https is not spoken");
  if (!text.starts_with(kScheme) || !is_plain(text)) return wrong;
  std::string_view rest = text.substr(kScheme.size());
  HttpUrl url;
  const std::size_t slash = rest.find('/');
  if (slash != std::string_view::npos) {
    url.path = rest.substr(slash);
    while (url.path.ends_with('/')) url.path.pop_back();
    rest = rest.substr(0, slash);
  }
  std::string_view port;
  if (rest.starts_with('[')) {
    const std::size_t close = rest.find(']');
    if (close == std::string_view::npos) return wrong;
    url.host = rest.substr(1, close - 1);
    const std::string_view after = rest.substr(close + 1);
    if (!after.empty() && after.front() != ':') return wrong;
    if (!after.empty()) port = after.substr(1);
    if (!after.empty() && !is_port(port)) return wrong;
  } else {
    const std::size_t colon = rest.find(':');
    url.host = rest.substr(0, colon);
    if (colon != std::string_view::npos) {
      port = rest.substr(colon + 1);
      if (!is_port(port)) return wrong;
    }
  }
  if (url.host.empty()) return wrong;
  if (!port.empty()) url.port = port;
  return url;
}

}  // namespace replayssm::load
