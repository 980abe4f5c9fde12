// JSON files of a checkpoint, read with named errors: a field of the wrong type or out of range is
// refused with file, field, value and what is accepted. Nothing here throws.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace replayssm {

// Accepted integers, both ends included.
struct IntRange {
  std::int64_t least = 0;
  std::int64_t most = 0;
};

// Accepted numbers; `least` itself is left out where `above` is set.
struct NumberRange {
  double least = 0;
  double most = 0;
  bool above = false;
};

enum class Presence { required, optional };

// The value for an error message, short enough for one line.
std::string describe(const nlohmann::json& value);

// The fields of one JSON object. A view: the object outlives it. A field that is null counts as
// absent where it is optional, as Hugging Face writes unset fields; absent optional fields leave
// `out` as it was.
class Fields {
 public:
  // `path` starts every error: "config.json: text_config.".
  Fields(const nlohmann::json& object, std::string path)
      : object_(&object), path_(std::move(path)) {}

  // Present and not null.
  bool has(std::string_view key) const;
  // The value as it is; null where absent.
  const nlohmann::json& at(std::string_view key) const;
  std::string name(std::string_view key) const { return path_ + std::string(key); }
  Error refuse_field(std::string_view key, std::string_view accepted) const;

  Status integer(std::string_view key, IntRange range, int& out,
                 Presence presence = Presence::optional) const;
  Status number(std::string_view key, NumberRange range, double& out) const;
  Status boolean(std::string_view key, bool& out) const;
  Status text(std::string_view key, std::string& out, Presence presence = Presence::optional) const;
  // One integer or a list of integers, appended to `out`.
  Status integers(std::string_view key, IntRange range, std::vector<int>& out) const;
  // The object in `key`. Precondition: has(key). An error if it is anything but an object.
  Result<Fields> object(std::string_view key) const;

 private:
  Status missing(std::string_view key, std::string_view accepted) const;

  const nlohmann::json* object_;
  std::string path_;
};

// Reads a whole file into memory. Errors: missing, not a regular file, more than `most` bytes.
Result<std::string> read_file(const std::filesystem::path& path, std::int64_t most);

// Parses a file of at most 64 MiB that holds one JSON object. Errors name the file and, where the
// text is not JSON, the byte.
Result<nlohmann::json> read_json_object(const std::filesystem::path& path);

}  // namespace replayssm
