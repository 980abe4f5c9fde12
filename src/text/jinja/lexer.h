// A template's source cut into tokens, white space control applied, as jinja2 does with trim_blocks
// and lstrip_blocks on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace replayssm::jinja {

struct Token {
  enum class Kind {
    text,          // template text between tags
    output_begin,  // {{
    output_end,    // }}
    block_begin,   // {%
    block_end,     // %}
    name,          // identifiers and keywords
    string,        // a literal, its escapes resolved
    integer,       // digits as written, underscores removed
    floating,      // the same, with a fraction or an exponent
    symbol,        // an operator or a bracket
    end,           // once, after everything else
  };
  Kind kind;
  std::string text;
  int line;  // from 1
};

// Comments are gone; a raw block is text. The source may be any UTF-8; its line ends count as "\n".
// Errors name the line.
Result<std::vector<Token>> tokenize(std::string_view source);

// "chat template, line N: MESSAGE".
Error template_error(int line, std::string_view message);

}  // namespace replayssm::jinja
