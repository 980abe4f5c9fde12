// Where a server is.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace replayssm::load {

struct HttpUrl {
  std::string host;  // without the brackets of an IPv6 address
  std::string port = "80";
  std::string path;  // "" or "/base", without a slash at the end

  // As a Host header has it.
  std::string authority() const;
};

// "http://HOST[:PORT][/BASE]". Errors name --url.
Result<HttpUrl> parse_url(std::string_view text);

}  // namespace replayssm::load
