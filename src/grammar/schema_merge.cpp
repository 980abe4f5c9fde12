#include "grammar/schema_merge.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

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

// Values by value, not owned.
struct ByValue {
  bool operator()(const Json* a, const Json* b) const { return *a < *b; }
};
using Values = std::set<const Json*, ByValue>;

Values values_of(const Json& list) {
  Values values;
  for (const Json& value : list) values.insert(&value);
  return values;
}

using Names = std::set<std::string, std::less<>>;

Names type_names(const Json& type) {
  if (type.is_string()) return {type.get<std::string>()};
  Names types;
  if (type.is_array()) {
    for (const Json& one : type) {
      if (one.is_string()) types.insert(one.get<std::string>());
    }
  }
  return types;
}

Result<Json> merge_types(const Json& first, const Json& second) {
  const Names a = type_names(first);
  const Names b = type_names(second);
  Json both = Json::array();
  for (const std::string& type : a) {
    const bool narrower = type == "integer" && b.contains("number");
    if (b.contains(type) || narrower) both.push_back(type);
    if (type == "number" && !b.contains("number") && b.contains("integer")) {
      both.push_back("integer");
    }
  }
  if (both.empty()) return cannot_merge("type");
  return both;
}

using Members = std::map<std::string_view, const Json*>;

Members by_name(const Json& object) {
  Members members;
  for (const auto& [name, member] : object.get_ref<const Json::object_t&>()) {
    members.emplace(name, &member);
  }
  return members;
}

Members properties_of(const Json& schema) {
  const auto properties = schema.find("properties");
  const bool has_some = properties != schema.end() && properties->is_object();
  return has_some ? by_name(*properties) : Members();
}

// A closed object admits no member that only the other schema knows.
bool closes_out(const Json& closed, const Json& open) {
  const auto additional = closed.find("additionalProperties");
  if (additional == closed.end() || *additional == true) return false;
  const auto ours = properties_of(closed);
  const auto theirs = properties_of(open);
  return std::any_of(theirs.begin(), theirs.end(),
                     [&](const auto& member) { return !ours.contains(member.first); });
}

// The schema that holds where both do.
Json conjunction(const Json& first, const Json& second) {
  if (first == second || first == true || second == false) return second;
  if (second == true || first == false) return first;
  // One list, since two schemas with allOf are not merged.
  Json parts = Json::array();
  for (const Json* schema : {&first, &second}) {
    const bool list = schema->is_object() && schema->size() == 1 && schema->contains("allOf") &&
                      schema->front().is_array();
    if (list) {
      const Json& own = schema->front();
      parts.insert(parts.end(), own.begin(), own.end());
    } else {
      parts.push_back(*schema);
    }
  }
  return Json{{"allOf", std::move(parts)}};
}

Json merge_properties(const Json& first, const Json& second) {
  const auto ours = by_name(first);
  const auto theirs = by_name(second);
  Json::object_t all;
  for (const auto& [name, schema] : first.get_ref<const Json::object_t&>()) {
    const auto other = theirs.find(name);
    all.emplace_back(name, other == theirs.end() ? schema : conjunction(schema, *other->second));
  }
  for (const auto& [name, schema] : second.get_ref<const Json::object_t&>()) {
    if (!ours.contains(name)) all.emplace_back(name, schema);
  }
  return all;
}

// What an array's place `at` may hold; its places behind `prefixItems` are those of `items`.
Json place_of(const Json& schema, std::size_t at) {
  if (const auto prefix = schema.find("prefixItems"); prefix != schema.end()) {
    if (at < prefix->size()) return (*prefix)[at];
  }
  return schema.value("items", Json(true));
}

// `items` governs the places that `prefixItems` leaves, so the two are merged place by place.
void merge_places(Json& merged, const Json& other) {
  const auto places = [](const Json& schema) -> std::size_t {
    const auto prefix = schema.find("prefixItems");
    return prefix == schema.end() ? 0 : prefix->size();
  };
  const std::size_t count = std::max(places(merged), places(other));
  Json prefix = Json::array();
  Json items = conjunction(place_of(merged, count), place_of(other, count));
  for (std::size_t i = 0; i < count; ++i) {
    Json place = conjunction(place_of(merged, i), place_of(other, i));
    if (place == false) {
      items = false;  // nor may there be any behind it
      break;
    }
    prefix.push_back(std::move(place));
  }
  merged["prefixItems"] = std::move(prefix);
  merged["items"] = std::move(items);
}

// Whether both have places of arrays to merge that are written as they should be.
bool has_places(const Json& first, const Json& second) {
  bool prefix = false;
  for (const Json* schema : {&first, &second}) {
    const auto list = schema->find("prefixItems");
    if (list == schema->end()) continue;
    if (!list->is_array()) return false;
    prefix = true;
  }
  return prefix;
}

Result<Json> merge_keyword(const std::string& key, const Json& first, const Json& second) {
  static const Names kLower = {"minimum", "exclusiveMinimum", "minLength", "minItems"};
  static const Names kUpper = {"maximum", "exclusiveMaximum", "maxLength", "maxItems"};
  if (first == second) return first;
  if (key == "type") return merge_types(first, second);
  const bool numbers = first.is_number() && second.is_number();
  if (kLower.contains(key) && numbers) return first < second ? second : first;
  if (kUpper.contains(key) && numbers) return first < second ? first : second;
  if (key == "required" && first.is_array() && second.is_array()) {
    Json all = first;
    Values known = values_of(first);
    for (const Json& name : second) {
      if (known.insert(&name).second) all.push_back(name);
    }
    return all;
  }
  if (key == "enum" && first.is_array() && second.is_array()) {
    const Values theirs = values_of(second);
    Json both = Json::array();
    for (const Json& value : first) {
      if (theirs.contains(&value)) both.push_back(value);
    }
    if (!both.empty()) return both;
  }
  if (key == "properties" && first.is_object() && second.is_object()) {
    return merge_properties(first, second);
  }
  if (key == "items" || key == "additionalProperties") return conjunction(first, second);
  return cannot_merge(key);
}

// What a document must be, as far as it is plain to see.
struct Shape {
  std::optional<Values> values;  // enum or const
  Names types;                   // empty: any; number also for integer
  const Json* object = nullptr;  // the schema

  bool only_object() const {
    return types.size() == 1 && types.contains("object") && object->contains("properties");
  }
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
  if (schema->contains("const")) shape.values = Values{&(*schema)["const"]};
  if (schema->contains("enum") && (*schema)["enum"].is_array()) {
    shape.values = values_of((*schema)["enum"]);
  }
  if (shape.values) {
    for (const Json* value : *shape.values) {
      shape.types.insert(value->is_number() ? "number" : value->type_name());
    }
  } else if (schema->contains("type")) {
    shape.types = type_names((*schema)["type"]);
    if (shape.types.erase("integer") > 0) shape.types.insert("number");
  }
  return shape;
}

// The constants of the required members that have some.
using Tags = std::map<std::string_view, Values>;

Tags tags_of(const Json& root, const Json& schema) {
  Tags tags;
  const auto required = schema.find("required");
  if (required == schema.end() || !required->is_array()) return tags;
  const auto members = properties_of(schema);
  for (const Json& name : *required) {
    if (!name.is_string()) continue;
    const auto member = members.find(name.get_ref<const std::string&>());
    if (member == members.end()) continue;
    if (auto values = shape_of(root, member->second).values) {
      tags.emplace(member->first, std::move(*values));
    }
  }
  return tags;
}

bool disjoint(const Tags& first, const Tags& second) {
  return std::any_of(first.begin(), first.end(), [&](const auto& tag) {
    const auto other = second.find(tag.first);
    return other != second.end() &&
           std::none_of(tag.second.begin(), tag.second.end(),
                        [&](const Json* value) { return other->second.contains(value); });
  });
}

using Pair = std::optional<std::pair<std::size_t, std::size_t>>;

// Whether one tag is in all of them, with no constant twice.
bool have_common_tag(const std::vector<Tags>& objects) {
  return std::any_of(objects[0].begin(), objects[0].end(), [&](const auto& candidate) {
    Values seen;
    return std::all_of(objects.begin(), objects.end(), [&](const Tags& tags) {
      const auto tag = tags.find(candidate.first);
      return tag != tags.end() &&
             std::all_of(tag->second.begin(), tag->second.end(),
                         [&](const Json* value) { return seen.insert(value).second; });
    });
  });
}

// Two of the objects, whose places in `shapes` are `at`, that no tag tells apart.
Pair overlap_of_objects(const Json& root, const std::vector<Shape>& shapes,
                        const std::vector<std::size_t>& at) {
  // More are compared by a tag that all have.
  constexpr std::size_t kMostCompared = 500;
  std::vector<Tags> tags;
  for (const std::size_t i : at) tags.push_back(tags_of(root, *shapes[i].object));
  if (have_common_tag(tags)) return std::nullopt;
  for (std::size_t i = 0; i < at.size(); ++i) {
    for (std::size_t k = i + 1; k < at.size(); ++k) {
      const bool constants = shapes[at[i]].values && shapes[at[k]].values;
      if (constants || (k < kMostCompared && disjoint(tags[i], tags[k]))) continue;
      return std::pair(at[i], at[k]);
    }
  }
  return std::nullopt;
}

}  // namespace

bool is_annotation(std::string_view keyword) {
  static const Names kAnnotations = {
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
  const bool places = has_places(first, second);
  if (places) merge_places(merged, second);
  for (const auto& [key, value] : second.items()) {
    if (is_annotation(key) || (places && (key == "items" || key == "prefixItems"))) continue;
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

std::optional<std::pair<std::size_t, std::size_t>> find_overlap(const Json& root,
                                                                const Json& schemas) {
  std::vector<Shape> shapes;
  for (const Json& schema : schemas) shapes.push_back(shape_of(root, &schema));
  std::map<const Json*, std::size_t, ByValue> owners;
  std::map<std::string_view, std::vector<std::size_t>> by_type;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Shape& shape = shapes[i];
    for (const std::string& type : shape.types) by_type[type].push_back(i);
    if (!shape.values) continue;
    for (const Json* value : *shape.values) {
      const auto [owner, fresh] = owners.try_emplace(value, i);
      if (!fresh && owner->second != i) return std::pair(owner->second, i);
    }
  }
  // Constants are told apart now. What has no type, or no constants and a type of another one, is
  // not, but for objects with tags.
  for (std::size_t i = 0; i < shapes.size() && shapes.size() > 1; ++i) {
    if (!shapes[i].types.empty()) continue;
    for (std::size_t k = 0; k < shapes.size(); ++k) {
      if (k != i && !(shapes[i].values && shapes[k].values)) {
        return std::pair(std::min(i, k), std::max(i, k));
      }
    }
  }
  for (const auto& [type, at] : by_type) {
    const auto of_any = [&](std::size_t i) { return !shapes[i].values; };
    const auto free = std::find_if(at.begin(), at.end(), of_any);
    if (at.size() < 2 || free == at.end()) continue;
    const bool objects =
        std::all_of(at.begin(), at.end(), [&](std::size_t i) { return shapes[i].only_object(); });
    if (objects) {
      if (const auto pair = overlap_of_objects(root, shapes, at)) return pair;
      continue;
    }
    const std::size_t other = *free == at[0] ? at[1] : at[0];
    return std::pair(std::min(*free, other), std::max(*free, other));
  }
  return std::nullopt;
}

}  // namespace replayssm::grammar
