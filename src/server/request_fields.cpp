#include "server/request_fields.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

namespace replayssm::server {
namespace {

const Json kNull;

// A whole number, also when it is written as 3.0; nothing beyond 64 bits.
std::optional<std::int64_t> whole_number(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (number >= -9.0e15 && number <= 9.0e15 &&
        number == static_cast<double>(static_cast<std::int64_t>(number))) {
      return static_cast<std::int64_t>(number);
    }
  }
  return std::nullopt;
}

}  // namespace

std::string shown(const Json& value) {
  constexpr std::size_t kMost = 80;
  std::string text = to_text(value);
  if (text.size() <= kMost) return text;
  std::size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "..";
}

RequestFields::RequestFields(const Json& body, std::string prefix)
    : body_(body), prefix_(std::move(prefix)) {
  if (body_.is_object()) return;
  if (prefix_.empty()) {
    fail(invalid_body("expected a JSON object"));
  } else {
    const std::string name = prefix_.substr(0, prefix_.size() - 1);  // without the dot
    fail(invalid_field(name, refuse(name, shown(body_), "a JSON object").message));
  }
}

const Json* RequestFields::find(std::string_view name) {
  known_.emplace(name);
  if (!ok()) return nullptr;
  const auto found = body_.find(name);
  return found == body_.end() || found->is_null() ? nullptr : &*found;
}

void RequestFields::fail(std::string_view name, std::string message) {
  fail(invalid_field(prefix_ + std::string(name), std::move(message)));
}

void RequestFields::fail(ApiError error) {
  if (ok()) error_ = std::move(error);
}

void RequestFields::refuse_type(std::string_view name, const Json& value,
                                std::string_view accepted) {
  fail(name, refuse(prefix_ + std::string(name), shown(value), accepted).message);
}

void RequestFields::read(std::string_view name, bool& target) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_boolean()) return refuse_type(name, *value, "true or false");
  target = value->get<bool>();
}

void RequestFields::read(std::string_view name, std::string& target) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_string()) return refuse_type(name, *value, "text");
  target = value->get<std::string>();
}

void RequestFields::read(std::string_view name, std::optional<double>& target) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_number()) return refuse_type(name, *value, "a number");
  target = value->get<double>();
}

void RequestFields::read(std::string_view name, std::optional<int>& target, int least, int most) {
  const Json* value = find(name);
  if (value == nullptr) return;
  const auto number = whole_number(*value);
  if (!number || *number < least || *number > most) {
    const bool open = most == std::numeric_limits<int>::max() && !(number && *number > most);
    return refuse_type(name, *value,
                       open ? fmt::format("a whole number, {} or more", least)
                            : fmt::format("a whole number from {} to {}", least, most));
  }
  target = static_cast<int>(*number);
}

void RequestFields::read(std::string_view name, int& target, int least, int most) {
  std::optional<int> value;
  read(name, value, least, most);
  target = value.value_or(target);
}

void RequestFields::read_seed(std::string_view name, std::optional<std::uint64_t>& target) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (value->is_number_unsigned()) {
    target = value->get<std::uint64_t>();
  } else if (const auto number = whole_number(*value)) {
    target = static_cast<std::uint64_t>(*number);
  } else {
    refuse_type(name, *value, "a whole number of 64 bits");
  }
}

void RequestFields::read_texts(std::string_view name, std::vector<std::string>& target,
                               std::size_t most) {
  const Json* value = find(name);
  if (value == nullptr) return;
  const std::string accepted = fmt::format("a text or a list of at most {} texts", most);
  std::vector<std::string> texts;
  if (value->is_string()) {
    texts.push_back(value->get<std::string>());
  } else if (value->is_array() && value->size() <= most) {
    for (const Json& text : *value) {
      if (!text.is_string()) return refuse_type(name, *value, accepted);
      texts.push_back(text.get<std::string>());
    }
  } else {
    return refuse_type(name, *value, accepted);
  }
  for (const std::string& text : texts) {
    if (text.empty()) return refuse_type(name, *value, "texts that are not empty");
  }
  target = std::move(texts);
}

void RequestFields::read_token_ids(std::string_view name, std::vector<std::int32_t>& target) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_array()) return refuse_type(name, *value, "a list of token ids");
  std::vector<std::int32_t> ids;
  ids.reserve(value->size());
  for (const Json& id : *value) {
    const auto number = whole_number(id);
    if (!number || *number < 0 || *number > std::numeric_limits<std::int32_t>::max()) {
      return refuse_type(name, id, "token ids, 0 or more");
    }
    ids.push_back(static_cast<std::int32_t>(*number));
  }
  target = std::move(ids);
}

const Json& RequestFields::take(std::string_view name) {
  const Json* value = find(name);
  return value == nullptr ? kNull : *value;
}

void RequestFields::ignore(std::initializer_list<std::string_view> names) {
  known_.insert(names.begin(), names.end());
}

void RequestFields::accept_neutral(std::initializer_list<NeutralField> fields) {
  for (const NeutralField& field : fields) {
    const Json* value = find(field.name);
    if (value == nullptr || *value == field.neutral) continue;
    const bool has_neutral = !field.neutral.is_null();
    fail(field.name, fmt::format("{}{}: {} is not implemented; expected {}", prefix_, field.name,
                                 shown(*value), has_neutral ? shown(field.neutral) : "no value"));
  }
}

void RequestFields::refuse_others() {
  if (!ok()) return;
  for (const auto& [name, value] : body_.items()) {
    if (value.is_null() || known_.contains(name)) continue;
    fail(name, fmt::format("{}{}: this field is not known here", prefix_, name));
    return;
  }
}

}  // namespace replayssm::server
