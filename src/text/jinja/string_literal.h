// Escapes in the string literals of templates: those of Python.
#pragma once

#include <string>
#include <string_view>

namespace replayssm::jinja {

// The text that the inside of a literal stands for. An escape that means nothing stays as it is
// written, backslash included, as in Python.
std::string unescaped(std::string_view literal);

}  // namespace replayssm::jinja
