#include "model/json_file.h"

#include <fmt/format.h>

#include <fstream>
#include <optional>
#include <system_error>

namespace replayssm {
namespace {

using nlohmann::json;

constexpr std::int64_t kLargestJson = std::int64_t{64} << 20;
constexpr std::size_t kLongestShown = 60;
constexpr std::size_t kLongestMessage = 160;

std::string accepted_text(IntRange range) {
  if (range.least == range.most) return fmt::format("{}", range.least);
  return fmt::format("an integer from {} to {}", range.least, range.most);
}

std::string accepted_text(NumberRange range) {
  return range.above ? fmt::format("a number above {} and up to {}", range.least, range.most)
                     : fmt::format("a number from {} to {}", range.least, range.most);
}

// nlohmann keeps what does not fit 64 bits as a double, which is no integer to us.
std::optional<std::int64_t> integer_in(const json& value, IntRange range) {
  if (!value.is_number_integer()) return std::nullopt;
  // Unsigned values past the signed maximum would turn negative.
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
    return std::nullopt;
  }
  const auto number = value.get<std::int64_t>();
  if (number < range.least || number > range.most) return std::nullopt;
  return number;
}

}  // namespace

std::string describe(const json& value) {
  // Containers are not printed: printing recurses as deep as the file says.
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kLongestShown) text = text.substr(0, kLongestShown) + "...";
  return text;
}

bool Fields::has(std::string_view key) const { return !at(key).is_null(); }

const json& Fields::at(std::string_view key) const {
  static const json kAbsent;
  const auto found = object_->find(key);
  return found == object_->end() ? kAbsent : *found;
}

Error Fields::refuse_field(std::string_view key, std::string_view accepted) const {
  return refuse(name(key), describe(at(key)), accepted);
}

Status Fields::missing(std::string_view key, std::string_view accepted) const {
  if (object_->contains(key)) return refuse_field(key, accepted);
  return Error{fmt::format("{}: missing; expected {}", name(key), accepted)};
}

Status Fields::integer(std::string_view key, IntRange range, int& out, Presence presence) const {
  if (!has(key)) {
    return presence == Presence::required ? missing(key, accepted_text(range)) : Status{};
  }
  const auto number = integer_in(at(key), range);
  if (!number) return refuse_field(key, accepted_text(range));
  out = static_cast<int>(*number);
  return {};
}

Status Fields::number(std::string_view key, NumberRange range, double& out) const {
  if (!has(key)) return {};
  const json& value = at(key);
  if (!value.is_number()) return refuse_field(key, accepted_text(range));
  const double number = value.get<double>();
  const bool inside =
      (range.above ? number > range.least : number >= range.least) && number <= range.most;
  if (!inside) return refuse_field(key, accepted_text(range));
  out = number;
  return {};
}

Status Fields::boolean(std::string_view key, bool& out) const {
  if (!has(key)) return {};
  if (!at(key).is_boolean()) return refuse_field(key, "true or false");
  out = at(key).get<bool>();
  return {};
}

Status Fields::text(std::string_view key, std::string& out, Presence presence) const {
  if (!has(key)) return presence == Presence::required ? missing(key, "a string") : Status{};
  if (!at(key).is_string()) return refuse_field(key, "a string");
  out = at(key).get_ref<const std::string&>();
  return {};
}

Status Fields::integers(std::string_view key, IntRange range, std::vector<int>& out) const {
  if (!has(key)) return {};
  const json& value = at(key);
  const std::string accepted = accepted_text(range) + ", or a list of them";
  if (!value.is_array()) {
    const auto number = integer_in(value, range);
    if (!number) return refuse_field(key, accepted);
    out.push_back(static_cast<int>(*number));
    return {};
  }
  for (std::size_t i = 0; i < value.size(); ++i) {
    const auto number = integer_in(value[i], range);
    if (!number) {
      return refuse(fmt::format("{}[{}]", name(key), i), describe(value[i]), accepted_text(range));
    }
    out.push_back(static_cast<int>(*number));
  }
  return {};
}

Result<Fields> Fields::object(std::string_view key) const {
  if (!at(key).is_object()) return refuse_field(key, "an object");
  return Fields(at(key), name(key) + ".");
}

Result<std::string> read_file(const std::filesystem::path& path, std::int64_t most) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return Error{
        fmt::format("{}: {}", path.string(),
                    std::filesystem::exists(path, error) ? "not a regular file" : "no such file")};
  }
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size > static_cast<std::uintmax_t>(most)) {
    return refuse(path.string(), fmt::format("a size of {} bytes", size),
                  fmt::format("at most {} bytes", most));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file) return Error{fmt::format("{}: cannot be read", path.string())};
  return text;
}

Result<json> read_json_object(const std::filesystem::path& path) {
  auto text = read_file(path, kLargestJson);
  if (!text) return text.error();
  json root;
  try {
    root = json::parse(*text);
  } catch (const json::parse_error& error) {
    return Error{fmt::format("{}: not valid JSON at byte {}", path.string(), error.byte)};
  } catch (const json::exception& error) {  // a number beyond what a double holds
    return Error{fmt::format("{}: {}", path.string(),
                             std::string_view(error.what()).substr(0, kLongestMessage))};
  }
  if (!root.is_object()) return refuse(path.string(), describe(root), "a JSON object");
  return root;
}

}  // namespace replayssm
