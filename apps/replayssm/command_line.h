// What is wrong with a command line, in one line that names flag, value and what is accepted.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

namespace replayssm::cli {

// A flag whose value is empty ("--seed ''", "--seed=", as an unset variable of a script gives),
// where text is not what it takes. Nothing if there is none.
std::optional<std::string> empty_value(int argc, const char* const* argv);

// A number that the parser would read as another one ("010", "--seed -1") or that no range holds
// off ("nan"). Nothing if there is none. `app`: before it parses.
std::optional<std::string> misread_number(const CLI::App& app, int argc, const char* const* argv);

// The parser's error in the words of this program. `app`: as parsed so far.
std::string explain(const CLI::ParseError& error, const CLI::App& app, int argc,
                    const char* const* argv);

}  // namespace replayssm::cli
