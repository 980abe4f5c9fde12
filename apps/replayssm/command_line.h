// What is wrong with a command line, in one line that names flag, value and what is accepted.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

namespace replayssm::cli {

// A flag whose value is empty ("--seed ''", "--seed=", as an unset variable of a script gives),
// where text is not what it takes. Nothing if there is none.
std::optional<std::string> empty_value(int argc, const char* const* argv);

// The parser's error in the words of this program. `app`: as parsed so far.
std::string explain(const CLI::ParseError& error, const CLI::App& app, int argc,
                    const char* const* argv);

}  // namespace replayssm::cli
