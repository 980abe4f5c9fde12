#include "grammar/schema_merge.h"

#include <algorithm>
#include <array>
#include <set>

namespace replayssm::grammar {
namespace {

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const bool escaped =
        text[i] == '%' && i + 2 < text.size() &&
        std::sscanf(std::string(text.substr(i + 1, 2)).c_str(), "%2x", &value) == 1;
    out += escaped ? static_cast<char>(value) : text[i];
    if (escaped) i += 2;
  }
  return out;
}

Error cannot_merge(std::string_view keyword) {
  return Error{
      fmt::format("keyword \"{}\" differs in schemas that must hold together (allOf, $ref "
                  "or anyOf with siblings); expected equal or compatible ones",
                  keyword)};
}

std::vector<std::string> type_list(const Json& type) {
  if (type.is_string()) return {type.get<std::string>()};
  std::vector<std::string> types;
  if (type.is_array()) {
    for (const Json& one : type) {
      if (one.is_string()) types.push_back(one.get<std::string>());
    }
  }
  return types;
}

bool contains(const std::vector<std::string>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

Result<Json> merge_types(const Json& first, const Json& second) {
  const auto a = type_list(first);
  const auto b = type_list(second);
  Json both = Json::array();
  for (const std::string& type : a) {
    const bool narrower = type == "integer" && contains(b, "number");
    if (contains(b, type) || narrower) both.push_back(type);
    if (type == "number" && !contains(b, "number") && contains(b, "integer")) {
      both.push_back("integer");
    }
  }
  if (both.empty()) return cannot_merge("type");
  return both;
}

// A closed object admits no member that only the other schema knows.
bool closes_out(const Json& closed, const Json& open) {
  const auto additional = closed.find("additionalProperties");
  if (additional == closed.end() || *additional == true) return false;
  const auto theirs = open.find("properties");
  if (theirs == open.end() || !theirs->is_object()) return false;
  const auto ours = closed.find("properties");
  for (const auto& [name, schema] : theirs->items()) {
    if (ours == closed.end() || !ours->contains(name)) return true;
  }
  return false;
}

Result<Json> merge_keyword(const std::string& key, const Json& first, const Json& second) {
  static const std::set<std::string, std::less<>> kLower = {"minimum", "exclusiveMinimum",
                                                            "minLength", "minItems"};
  static const std::set<std::string, std::less<>> kUpper = {"maximum", "exclusiveMaximum",
                                                            "maxLength", "maxItems"};
  if (first == second || is_annotation(key)) return first;
  if (key == "type") return merge_types(first, second);
  const bool numbers = first.is_number() && second.is_number();
  if (kLower.contains(key) && numbers) return first < second ? second : first;
  if (kUpper.contains(key) && numbers) return first < second ? first : second;
  if (key == "required" && first.is_array() && second.is_array()) {
    Json all = first;
    for (const Json& name : second) {
      if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
    }
    return all;
  }
  if (key == "enum" && first.is_array() && second.is_array()) {
    Json both = Json::array();
    for (const Json& value : first) {
      if (std::find(second.begin(), second.end(), value) != second.end()) both.push_back(value);
    }
    if (!both.empty()) return both;
  }
  if (key == "properties" && first.is_object() && second.is_object()) {
    Json all = first;
    for (const auto& [name, schema] : second.items()) {
      if (!all.contains(name)) {
        all[name] = schema;
      } else if (all[name] != schema) {
        all[name] = Json{{"allOf", Json::array({all[name], schema})}};
      }
    }
    return all;
  }
  if (key == "items" || key == "additionalProperties") {
    if (first == true || second == false) return second;
    if (second == true || first == false) return first;
    return Json{{"allOf", Json::array({first, second})}};
  }
  return cannot_merge(key);
}

// What a document must be, as far as it is plain to see.
struct Shape {
  std::optional<Json> values;      // enum or const
  std::vector<std::string> types;  // empty: any
  const Json* object = nullptr;    // the schema
};

Shape shape_of(const Json& root, const Json* schema) {
  for (int steps = 0; steps < 16 && schema->is_object() && schema->contains("$ref"); ++steps) {
    const auto& reference = (*schema)["$ref"];
    if (!reference.is_string()) break;
    const auto target = resolve_reference(root, reference.get_ref<const std::string&>());
    if (!target.ok()) break;
    schema = *target;
  }
  Shape shape;
  if (!schema->is_object()) return shape;
  shape.object = schema;
  if (schema->contains("const")) shape.values = Json::array({(*schema)["const"]});
  if (schema->contains("enum") && (*schema)["enum"].is_array()) shape.values = (*schema)["enum"];
  if (schema->contains("type")) shape.types = type_list((*schema)["type"]);
  if (shape.values) {
    shape.types.clear();
    for (const Json& value : *shape.values) {
      shape.types.push_back(value.is_number() ? "number" : value.type_name());
    }
  }
  for (std::string& type : shape.types) {
    if (type == "integer") type = "number";
  }
  return shape;
}

}  // namespace

bool is_annotation(std::string_view keyword) {
  static const std::set<std::string, std::less<>> kAnnotations = {
      "title",   "description", "default", "examples",      "deprecated", "readOnly",   "writeOnly",
      "$schema", "$comment",    "$id",     "discriminator", "$defs",      "definitions"};
  return kAnnotations.contains(keyword) || keyword.starts_with("x-");
}

Json moved(Json schema, const std::string& place) {
  if (schema.is_object()) {
    for (auto& [key, value] : schema.items()) {
      const bool reference = key == "$ref" && value.is_string();
      if (reference && value.get_ref<const std::string&>().starts_with('#')) {
        value = "#" + place + value.get<std::string>().substr(1);
      } else {
        value = moved(std::move(value), place);
      }
    }
  } else if (schema.is_array()) {
    for (Json& element : schema) element = moved(std::move(element), place);
  }
  return schema;
}

Result<const Json*> resolve_reference(const Json& root, std::string_view reference) {
  if (reference == "#") return &root;
  if (!reference.starts_with("#/")) {
    return refuse("$ref", reference, "\"#\" or \"#/...\" within the schema");
  }
  try {
    const Json::json_pointer pointer(percent_decoded(reference.substr(1)));
    if (root.contains(pointer)) return &root.at(pointer);
  } catch (const Json::exception&) {
    // Not a pointer; the same error.
  }
  return Error{fmt::format("$ref: {} leads nowhere", reference)};
}

Result<Json> merge_schemas(const Json& first, const Json& second) {
  if (closes_out(first, second) || closes_out(second, first)) {
    return cannot_merge("additionalProperties");
  }
  Json merged = first;
  for (const auto& [key, value] : second.items()) {
    if (!merged.contains(key)) {
      merged[key] = value;
      continue;
    }
    auto both = merge_keyword(key, merged[key], value);
    if (!both.ok()) return both.error();
    merged[key] = std::move(*both);
  }
  return merged;
}

bool provably_disjoint(const Json& root, const Json& first, const Json& second) {
  const Shape a = shape_of(root, &first);
  const Shape b = shape_of(root, &second);
  if (a.values && b.values) {
    return std::none_of(a.values->begin(), a.values->end(), [&](const Json& value) {
      return std::find(b.values->begin(), b.values->end(), value) != b.values->end();
    });
  }
  if (a.types.empty() || b.types.empty()) return false;
  std::vector<std::string> both;
  for (const std::string& type : a.types) {
    if (contains(b.types, type)) both.push_back(type);
  }
  if (both.empty()) return true;
  // A tag that tells the objects apart.
  const bool objects = a.types.size() == 1 && b.types.size() == 1 && both[0] == "object" &&
                       a.object->contains("properties") && b.object->contains("properties");
  if (!objects) return false;
  const auto required = [](const Json& schema, const std::string& name) {
    const auto list = schema.find("required");
    return list != schema.end() && std::find(list->begin(), list->end(), name) != list->end();
  };
  for (const auto& [name, schema] : (*a.object)["properties"].items()) {
    const Json& theirs = (*b.object)["properties"];
    if (!theirs.contains(name) || !required(*a.object, name) || !required(*b.object, name))
      continue;
    const Shape one = shape_of(root, &schema);
    const Shape other = shape_of(root, &theirs[name]);
    if (one.values && other.values && provably_disjoint(root, schema, theirs[name])) return true;
  }
  return false;
}

}  // namespace replayssm::grammar
