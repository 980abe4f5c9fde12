#include "command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace replayssm::cli {
namespace {

bool is_flag(std::string_view text) { return text.size() > 2 && text.substr(0, 2) == "--"; }

// "INT:{8,16,32}" to "a whole number, {8,16,32}".
std::string accepted_by(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t colon = type.find(':');
  const std::string kind = type.substr(0, colon);
  std::string text = kind == "FLOAT" ? "a number" : kind == "TEXT" ? "text" : "a whole number";
  if (colon != std::string::npos) text += ", " + type.substr(colon + 1);
  return text;
}

// The option of this name in the innermost command that was named, or any before it.
const CLI::Option* find_option(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands()) {
    if (const CLI::Option* found = find_option(*command, name)) return found;
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->check_name(name)) return option;
  }
  return nullptr;
}

// What the parser would take for another number, or for one where none is meant: nothing if it is
// none of that. It reads 010 as eight, -1 as the largest unsigned number and one beyond that as it
// too, and its ranges hold for nan.
const char* misread(const std::string& kind, const std::string& value) {
  const std::size_t digits = value.find_first_not_of("+-");
  const bool is_number =
      digits != std::string::npos && std::isdigit(static_cast<unsigned char>(value[digits])) != 0;
  if (kind == "INT" || kind == "UINT") {
    if (!is_number) return nullptr;  // the parser refuses it
    std::uint64_t number = 0;
    const char *const begin = value.data() + digits, *const end = value.data() + value.size();
    const bool whole = std::from_chars(begin, end, number).ec == std::errc{};
    if (kind == "UINT" && (value.front() == '-' || !whole)) {
      return "a whole number from 0 to 18446744073709551615";
    }
    if (value[digits] == '0' && digits + 1 < value.size()) {
      return "a whole number in decimal digits, without leading zeros";
    }
  } else if (kind == "FLOAT") {
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    if (*end == '\0' && !std::isfinite(number)) return "a finite number";
  }
  return nullptr;
}

std::string list_of_commands(const CLI::App& app) {
  std::string list;
  for (const CLI::App* command : app.get_subcommands({})) list += " " + command->get_name();
  return list;
}

}  // namespace

std::optional<std::string> empty_value(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    std::string_view name = argv[i];
    const std::size_t equals = name.find('=');
    const bool joined = is_flag(name) && equals != std::string_view::npos;
    const bool empty = joined
                           ? equals + 1 == name.size()
                           : is_flag(name) && i + 1 < argc && std::string_view(argv[i + 1]).empty();
    name = name.substr(0, joined ? equals : name.size());
    if (empty && name != "--prompt") {
      return fmt::format("{}: an empty value is not accepted; leave the flag out for its default",
                         name);
    }
  }
  return std::nullopt;
}

std::optional<std::string> misread_number(const CLI::App& app, int argc, const char* const* argv) {
  std::vector<const CLI::App*> commands{&app};  // that have been named so far
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    if (!is_flag(text)) {
      for (const CLI::App* command : commands.back()->get_subcommands({})) {
        if (command->get_name() == text) {
          commands.push_back(command);
          break;
        }
      }
      continue;
    }
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const CLI::Option* option = nullptr;
    for (const CLI::App* command : commands) {
      for (const CLI::Option* some : command->get_options()) {
        if (some->check_name(name)) option = some;
      }
    }
    if (option == nullptr || option->get_items_expected_max() == 0) continue;
    if (equals == std::string::npos && ++i == argc) break;
    const std::string value = equals == std::string::npos ? argv[i] : text.substr(equals + 1);
    const std::string type = option->get_type_name();
    if (const char* expected = misread(type.substr(0, type.find(':')), value)) {
      return fmt::format("{}: {} is not accepted; expected {}", name, value, expected);
    }
  }
  return std::nullopt;
}

std::string explain(const CLI::ParseError& error, const CLI::App& app, int argc,
                    const char* const* argv) {
  std::string line = error.what();
  std::replace(line.begin(), line.end(), '\n', ' ');
  // The parser says only that a command is missing when it does not know the one that was given.
  const CLI::App* innermost = &app;
  int depth = 1;
  while (!innermost->get_subcommands().empty()) {
    innermost = innermost->get_subcommands().front();
    ++depth;
  }
  const bool wants_command = !innermost->get_subcommands({}).empty();
  if (wants_command && argc > depth && argv[depth][0] != '-') {
    return fmt::format("{} is not a command; expected{}", argv[depth],
                       list_of_commands(*innermost));
  }
  if (wants_command && argc <= depth) {
    return fmt::format("a command is missing; expected{}", list_of_commands(*innermost));
  }
  // "Could not convert: --top-k = x", or "--top-k: x" from a list of accepted values.
  constexpr std::string_view kConversion = "Could not convert: ";
  const bool conversion = line.rfind(kConversion, 0) == 0;
  const std::string_view separator = conversion ? " = " : ": ";
  const std::string rest = conversion ? line.substr(kConversion.size()) : line;
  const std::size_t at = rest.find(separator);
  if (at == std::string::npos) return line;
  const std::string name = rest.substr(0, at);
  const std::string value = rest.substr(at + separator.size());
  const CLI::Option* option = find_option(app, name);
  if (option == nullptr || value.find(' ') != std::string::npos) return line;
  return fmt::format("{}: {} is not accepted; expected {}", name, value, accepted_by(*option));
}

}  // namespace replayssm::cli
