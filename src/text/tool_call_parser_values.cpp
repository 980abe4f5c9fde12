#include "text/tool_call_parser_values.h"

#include <cctype>
#include <cmath>
#include <optional>
#include <unordered_set>
#include <vector>

#include "text/tool_call_parser_format.h"

namespace replayssm {
namespace {

using Json = nlohmann::ordered_json;

struct Types {
  bool string = false, null = false, boolean = false, integer = false, number = false,
       array = false, object = false;

  void add(std::string_view name) {
    if (name == "string") string = true;
    if (name == "null") null = true;
    if (name == "boolean") boolean = true;
    if (name == "integer") integer = true;
    if (name == "number") number = true;
    if (name == "array") array = true;
    if (name == "object") object = true;
  }

  void add_type_of(const Json& value) {
    if (value.is_number_float()) {
      number = true;
    } else if (value.is_number()) {
      integer = true;
    } else {
      add(value.type_name());
    }
  }

  bool any() const { return string || null || boolean || integer || number || array || object; }
};

// The place in `root` that a reference within it names, or null.
const Json* referenced(const Json& reference, const Json& root) {
  if (!reference.is_string()) return nullptr;
  const std::string& path = reference.get_ref<const std::string&>();
  if (!path.starts_with('#')) return nullptr;
  try {
    const Json::json_pointer pointer(path.substr(1));
    return root.contains(pointer) ? &root.at(pointer) : nullptr;
  } catch (const Json::exception&) {
    return nullptr;  // a pointer that is none points nowhere
  }
}

// Adds the types that the keywords of one schema name. Those of its alternatives and of what it
// refers to are still to come: they go to `more`.
void add_types(const Json& schema, const Json& root, Types& types, std::vector<const Json*>& more) {
  if (!schema.is_object()) return;
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (type->is_string()) types.add(type->get_ref<const std::string&>());
    if (type->is_array()) {
      for (const Json& one : *type) {
        if (one.is_string()) types.add(one.get_ref<const std::string&>());
      }
    }
    return;
  }
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    for (const Json& value : *values) types.add_type_of(value);
    return;
  }
  if (const auto value = schema.find("const"); value != schema.end()) types.add_type_of(*value);
  for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
    const auto alternatives = schema.find(keyword);
    if (alternatives == schema.end() || !alternatives->is_array()) continue;
    for (const Json& one : *alternatives) more.push_back(&one);
  }
  if (const auto reference = schema.find("$ref"); reference != schema.end()) {
    if (const Json* target = referenced(*reference, root)) more.push_back(target);
  }
}

// References may lead in circles and many may lead to one schema, so each is looked at once.
Types types_of(const Json& schema, const Json& root) {
  Types types;
  std::vector<const Json*> waiting = {&schema};
  std::unordered_set<const Json*> seen;
  while (!waiting.empty()) {
    const Json* one = waiting.back();
    waiting.pop_back();
    if (seen.insert(one).second) add_types(*one, root, types, waiting);
  }
  return types;
}

bool equals_ignoring_case(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(text[i])) != lower[i]) return false;
  }
  return true;
}

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(skip_whitespace(text, 0));
  while (!text.empty() && kJsonWhitespace.find(text.back()) != std::string_view::npos) {
    text.remove_suffix(1);
  }
  return text;
}

bool is_integer(std::string_view number) {
  if (number.starts_with('-')) number.remove_prefix(1);
  return number.find_first_not_of("0123456789") == std::string_view::npos;
}

// The JSON of one of the types, nothing if the text fits none but a string.
std::optional<std::string> convert(std::string_view text, const Types& types) {
  const std::string_view word = trimmed(text);
  // Models also write Python's None, True and False.
  if (types.null && (equals_ignoring_case(word, "null") || equals_ignoring_case(word, "none"))) {
    return "null";
  }
  if (types.boolean && equals_ignoring_case(word, "true")) return "true";
  if (types.boolean && equals_ignoring_case(word, "false")) return "false";
  if (word.empty()) return std::nullopt;
  const char first = word.front();
  const bool number = first == '-' || (first >= '0' && first <= '9');
  const bool wanted = (number && (types.integer || types.number)) ||
                      (first == '[' && types.array) || (first == '{' && types.object);
  if (!wanted || !Json::accept(word)) return std::nullopt;
  if (number && !types.number && !is_integer(word)) {
    // 5.0 is an integer to JSON schema; 5.5 is not.
    const double value = Json::parse(word).get<double>();
    if (value != std::trunc(value)) return std::nullopt;
  }
  return std::string(word);
}

std::string quoted(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

ToolSchemas::ToolSchemas(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools) {
    if (!tool.is_object()) continue;
    const auto function = tool.find("function");
    if (function == tool.end() || !function->is_object()) continue;
    const auto name = function->find("name");
    const auto parameters = function->find("parameters");
    if (name == function->end() || !name->is_string() || parameters == function->end()) continue;
    parameters_[name->get<std::string>()] = *parameters;
  }
}

std::string ToolSchemas::to_json(std::string_view tool, std::string_view parameter,
                                 std::string_view text) const {
  const auto root = parameters_.find(tool);
  if (root == parameters_.end() || !root->is_object()) return quoted(text);
  const Json* schema = nullptr;
  if (const auto properties = root->find("properties"); properties != root->end()) {
    if (const auto property = properties->find(parameter); property != properties->end()) {
      schema = &*property;
    }
  }
  if (schema == nullptr) {
    const auto additional = root->find("additionalProperties");
    if (additional != root->end()) schema = &*additional;
  }
  if (schema == nullptr) return quoted(text);
  const Types types = types_of(*schema, *root);
  if (!types.any()) return quoted(text);
  return convert(text, types).value_or(quoted(text));
}

}  // namespace replayssm
