#include "grammar/schema_compiler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>

#include "grammar/json_rules.h"
#include "grammar/regex.h"
#include "grammar/string_format.h"

namespace replayssm::grammar {
namespace {

constexpr int kMostNesting = 64;  // of schemas and of the merges they need
constexpr int kMostJsonNesting = 200;
// Schemas that are looked at, those that merging makes included: alternatives in alternatives
// multiply.
constexpr int kMostSchemas = 10'000;
constexpr std::uint32_t kMostCount = 1'000'000;

using Names = std::set<std::string, std::less<>>;
const Names kTypes = {"array", "boolean", "integer", "null", "number", "object", "string"};
constexpr std::string_view kTypeList = "array, boolean, integer, null, number, object or string";
const Names kObjectKeywords = {"properties", "required", "additionalProperties"};
const Names kArrayKeywords = {"items", "prefixItems", "minItems", "maxItems"};
const Names kStringKeywords = {"minLength", "maxLength", "pattern", "format"};
const Names kNumberKeywords = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
const Names kOtherKeywords = {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"};

// Copies and texts of JSON recurse, so what is nested too deep goes no further than here.
bool nests_deeper(const Json& value, int levels) {
  if (!value.is_structured()) return false;
  if (levels == 0) return true;
  return std::any_of(value.begin(), value.end(),
                     [&](const Json& part) { return nests_deeper(part, levels - 1); });
}

// A place in the schema, for errors.
struct At {
  std::string path;
  int nesting = 0;

  At below(std::string_view part) const { return {fmt::format("{}/{}", path, part), nesting + 1}; }
  Error error(std::string_view message) const {
    return Error{fmt::format("schema {}: {}", path.empty() ? "#" : "#" + path, message)};
  }
  Error refuse_keyword(std::string_view keyword, const Json& value,
                       std::string_view accepted) const {
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    return error(refuse(fmt::format("keyword \"{}\"", keyword), text, accepted).message);
  }
};

class SchemaCompiler {
 public:
  explicit SchemaCompiler(const Json& root) : root_(&root), rules_(builder_) {}

  Result<Program> compile() {
    if (nests_deeper(*root_, kMostJsonNesting)) {
      return Error{fmt::format("schema: it nests deeper than {} levels", kMostJsonNesting)};
    }
    const RuleId value = builder_.declare();
    references_["#"] = value;
    REPLAYSSM_TRY(compile_into(value, *root_, At{}));
    return finish(rules_.whitespace(builder_.call(value, builder_.done())));
  }

  Result<Program> compile_around(const std::function<Result<NodeId>(SchemaRules&)>& entry) {
    if (nests_deeper(*root_, kMostJsonNesting)) {
      return Error{fmt::format("schema: it nests deeper than {} levels", kMostJsonNesting)};
    }
    SchemaRules rules{builder_, rules_, [this](const Json& schema, std::string_view path) {
                        return compile_new(schema, At{std::string(path)});
                      }};
    const auto node = entry(rules);
    if (!node.ok()) return node.error();
    return finish(*node);
  }

 private:
  Result<Program> finish(NodeId document) {
    const RuleId root = builder_.rule(document);
    if (builder_.overflow()) return too_large();
    return std::move(builder_).finish(root);
  }

  static Error too_large() {
    return Error{fmt::format(
        "schema: it is too large; expected at most {} schemas and a grammar of {} nodes",
        kMostSchemas, ProgramBuilder::kMostNodes)};
  }

  void define(RuleId rule, NodeId entry) { builder_.define(rule, entry); }
  NodeId done() const { return builder_.done(); }

  Result<RuleId> compile_new(const Json& schema, const At& at) {
    const RuleId rule = builder_.declare();
    REPLAYSSM_TRY(compile_into(rule, schema, at));
    return rule;
  }

  Status check_keywords(const Json& schema, const At& at) {
    for (const auto& [key, value] : schema.items()) {
      const bool known = is_annotation(key) || kObjectKeywords.contains(key) ||
                         kArrayKeywords.contains(key) || kStringKeywords.contains(key) ||
                         kNumberKeywords.contains(key) || kOtherKeywords.contains(key);
      // The one value with which this keyword asks for nothing.
      const bool void_of_meaning = key == "uniqueItems" && value == false;
      if (!known && !void_of_meaning) {
        return at.error(fmt::format("keyword \"{}\" is not supported", key));
      }
    }
    return {};
  }

  Status compile_into(RuleId rule, const Json& schema, const At& at) {
    if (at.nesting > kMostNesting) return at.error("schemas nest deeper than 64");
    if (++schemas_ > kMostSchemas || builder_.overflow()) return too_large();
    if (schema == true) {
      define(rule, builder_.call(rules_.any_value(), done()));
      return {};
    }
    if (schema == false) return at.error("the schema false admits no document");
    if (!schema.is_object()) return at.error("expected an object or a boolean");
    REPLAYSSM_TRY(check_keywords(schema, at));
    Json rest = Json::object();
    for (const auto& [key, value] : schema.items()) {
      if (!is_annotation(key) && key != "uniqueItems") rest[key] = value;
    }
    if (rest.contains("$ref")) return compile_reference(rule, std::move(rest), at);
    if (rest.contains("allOf")) return compile_all_of(rule, std::move(rest), at);
    for (const char* key : {"anyOf", "oneOf"}) {
      if (rest.contains(key)) return compile_any_of(rule, key, std::move(rest), at);
    }
    if (rest.contains("enum") || rest.contains("const")) return compile_constants(rule, rest, at);
    return compile_types(rule, rest, at);
  }

  Status compile_reference(RuleId rule, Json rest, const At& at) {
    if (!rest["$ref"].is_string()) return at.refuse_keyword("$ref", rest["$ref"], "a string");
    const std::string reference = rest["$ref"].get<std::string>();
    const auto target = resolve_reference(*root_, reference);
    if (!target.ok()) return at.error(target.error().message);
    rest.erase("$ref");
    if (!rest.empty()) {
      Json together = {{"allOf", Json::array({**target, rest})}};
      return compile_into(rule, together, at.below("$ref"));
    }
    const auto [known, fresh] = references_.try_emplace(reference, 0);
    if (fresh) {
      known->second = builder_.declare();
      // A path from the root again: the same place however one got there.
      REPLAYSSM_TRY(compile_into(known->second, **target, At{reference.substr(1), at.nesting + 1}));
    }
    define(rule, builder_.call(references_[reference], done()));
    return {};
  }

  // The schema without a $ref at its top, as merging needs it.
  Result<Json> dereferenced(const Json& schema, const At& at) {
    const Json* target = &schema;
    for (int steps = 0; target->is_object() && target->contains("$ref"); ++steps) {
      if (steps == 16) return at.error("$ref leads to $ref too often");
      const auto& keywords = target->get_ref<const Json::object_t&>();
      const bool alone = std::all_of(keywords.begin(), keywords.end(), [](const auto& keyword) {
        return keyword.first == "$ref" || is_annotation(keyword.first);
      });
      if (!alone || !(*target)["$ref"].is_string()) break;
      const auto next = resolve_reference(*root_, (*target)["$ref"].get<std::string>());
      if (!next.ok()) return at.error(next.error().message);
      target = *next;
    }
    return *target;
  }

  Status compile_all_of(RuleId rule, Json rest, const At& at) {
    const Json parts = rest["allOf"];
    if (!parts.is_array() || parts.empty()) {
      return at.refuse_keyword("allOf", parts, "a list of schemas that is not empty");
    }
    rest.erase("allOf");
    std::vector<Json> together = {std::move(rest)};
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const At part_at = at.below(fmt::format("allOf/{}", i));
      if (part_at.nesting > kMostNesting) return at.error("schemas nest deeper than 64");
      auto part = dereferenced(parts[i], part_at);
      if (!part.ok()) return part.error();
      if (*part == true) *part = Json::object();
      if (!part->is_object()) return part_at.error("expected an object");
      REPLAYSSM_TRY(check_keywords(*part, part_at));
      together.push_back(std::move(*part));
    }
    auto merged = merge_all(together, 0, together.size(), at);
    if (!merged.ok()) return merged.error();
    return compile_into(rule, *merged, at.below("allOf"));
  }

  // Halves first: merging one after the other would copy what is merged with each of them. The
  // first of `schemas` stands beside allOf, the others in it.
  Result<Json> merge_all(std::span<Json> schemas, std::size_t first, std::size_t last,
                         const At& at) {
    if (last - first == 1) return std::move(schemas[first]);
    const std::size_t middle = first + (last - first + 1) / 2;
    auto left = merge_all(schemas, first, middle, at);
    if (!left.ok()) return left.error();
    auto right = merge_all(schemas, middle, last, at);
    if (!right.ok()) return right.error();
    auto both = merge_schemas(*left, *right);
    if (both.ok()) return both;
    return at.below(fmt::format("allOf/{}", middle - 1)).error(both.error().message);
  }

  Status compile_any_of(RuleId rule, const std::string& key, Json rest, const At& at) {
    const Json parts = rest[key];
    if (!parts.is_array() || parts.empty()) {
      return at.refuse_keyword(key, parts, "a list of schemas that is not empty");
    }
    rest.erase(key);
    if (key == "oneOf") REPLAYSSM_TRY(check_one_of(parts, at));
    std::vector<NodeId> alternatives;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const At part_at = at.below(fmt::format("{}/{}", key, i));
      const Json together =
          rest.empty() ? parts[i] : Json{{"allOf", Json::array({rest, parts[i]})}};
      const auto part = compile_new(together, part_at);
      if (!part.ok()) return part.error();
      alternatives.push_back(builder_.call(*part, done()));
    }
    define(rule, builder_.any_of(alternatives));
    return {};
  }

  // Exactly one may hold, so no two may: otherwise a document that fits two would come out.
  Status check_one_of(const Json& parts, const At& at) {
    const auto overlap = find_overlap(*root_, parts);
    if (!overlap) return {};
    return at.error(fmt::format(
        "keyword \"oneOf\": schemas {} and {} may both hold; expected different types, or a "
        "required member with different constants, or anyOf instead",
        overlap->first, overlap->second));
  }

  Status compile_constants(RuleId rule, const Json& schema, const At& at) {
    const bool list = schema.contains("enum");
    const std::string key = list ? "enum" : "const";
    for (const auto& [other, value] : schema.items()) {
      if (other != key && other != "type") {
        return at.error(fmt::format("keyword \"{}\" beside \"{}\" is not supported", other, key));
      }
    }
    const Json values = list ? schema["enum"] : Json::array({schema["const"]});
    if (!values.is_array() || values.empty()) {
      return at.refuse_keyword(key, values, "a list that is not empty");
    }
    const auto types = types_of(schema, at);
    if (!types.ok()) return types.error();
    std::vector<std::string> texts;
    std::vector<NodeId> alternatives;
    for (const Json& value : values) {
      const std::string type = value.is_number() ? "number" : value.type_name();
      const bool whole =
          value.is_number_integer() ||
          (value.is_number() && value.get<double>() == std::trunc(value.get<double>()));
      const bool fits = types->empty() || types->contains(type) ||
                        (type == "number" && whole && types->contains("integer"));
      if (!fits) continue;
      if (value.is_structured()) {
        alternatives.push_back(rules_.constant(value, done()));
      } else {
        texts.push_back(value.dump());
      }
    }
    if (!texts.empty()) alternatives.push_back(rules_.any_text(std::move(texts), done()));
    if (alternatives.empty()) return at.refuse_keyword(key, values, "a value of the schema's type");
    define(rule, builder_.any_of(alternatives));
    return {};
  }

  // Empty: any type.
  Result<Names> types_of(const Json& schema, const At& at) {
    const auto type = schema.find("type");
    Names types;
    if (type == schema.end()) return types;
    const Json list = type->is_array() ? *type : Json::array({*type});
    for (const Json& one : list) {
      const bool known = one.is_string() && kTypes.contains(one.get<std::string>());
      if (!known) return at.refuse_keyword("type", one, kTypeList);
      types.insert(one.get<std::string>());
    }
    if (types.empty()) return at.refuse_keyword("type", *type, kTypeList);
    return types;
  }

  Status compile_types(RuleId rule, const Json& schema, const At& at) {
    auto given = types_of(schema, at);
    if (!given.ok()) return given.error();
    Names types = std::move(*given);
    if (types.empty()) {
      // Keywords of one type and no type: that type is meant.
      for (const auto& [key, value] : schema.items()) {
        if (kObjectKeywords.contains(key)) types.insert("object");
        if (kArrayKeywords.contains(key)) types.insert("array");
        if (kStringKeywords.contains(key)) types.insert("string");
        if (kNumberKeywords.contains(key)) types.insert("number");
      }
    }
    if (types.empty()) {
      define(rule, builder_.call(rules_.any_value(), done()));
      return {};
    }
    std::vector<NodeId> alternatives;
    for (const std::string& type : types) {
      if (type == "integer" && types.contains("number")) continue;
      auto node = compile_type(type, schema, at);
      if (!node.ok()) return node.error();
      alternatives.push_back(*node);
    }
    define(rule, builder_.any_of(alternatives));
    return {};
  }

  Result<NodeId> compile_type(const std::string& type, const Json& schema, const At& at) {
    if (type == "null") return builder_.literal("null", done());
    if (type == "boolean") {
      return builder_.split(builder_.literal("true", done()), builder_.literal("false", done()));
    }
    if (type == "string") return compile_string(schema, at);
    if (type == "array") return compile_array(schema, at);
    if (type == "object") return compile_object(schema, at);
    return compile_number(type == "integer", schema, at);
  }

  Result<std::uint32_t> count(const Json& schema, const char* key, std::uint32_t otherwise,
                              const At& at) {
    const auto value = schema.find(key);
    if (value == schema.end()) return otherwise;
    const bool whole = value->is_number() && value->get<double>() >= 0 &&
                       value->get<double>() <= kMostCount &&
                       value->get<double>() == std::trunc(value->get<double>());
    if (!whole) return at.refuse_keyword(key, *value, "an integer from 0 to 1000000");
    return value->get<std::uint32_t>();
  }

  Result<NodeId> compile_string(const Json& schema, const At& at) {
    const auto least = count(schema, "minLength", 0, at);
    if (!least.ok()) return least.error();
    const auto most = count(schema, "maxLength", kUnbounded, at);
    if (!most.ok()) return most.error();
    if (*least > *most) return at.error("keyword \"minLength\" is larger than \"maxLength\"");
    const bool counted = *least > 0 || *most != kUnbounded;
    const auto pattern = schema.find("pattern");
    const auto format = schema.find("format");
    if (pattern == schema.end() && format == schema.end()) {
      return rules_.string(*least, *most, done());
    }
    const std::string key = pattern != schema.end() ? "pattern" : "format";
    if (counted || (pattern != schema.end() && format != schema.end())) {
      return at.error(fmt::format("keyword \"{}\" together with \"{}\" is not supported", key,
                                  counted ? "minLength or maxLength" : "format"));
    }
    const Json& value = schema[key];
    if (!value.is_string()) return at.refuse_keyword(key, value, "a string");
    std::string expression = value.get<std::string>();
    if (key == "format") {
      const auto known = pattern_of_format(expression);
      if (!known) return at.refuse_keyword(key, value, kFormats);
      expression = *known;
    }
    const auto body = build_pattern(builder_, expression, builder_.byte('"', done()));
    if (!body.ok()) return at.error(fmt::format("keyword {}", body.error().message));
    return builder_.byte('"', *body);
  }

  Result<std::optional<NumberBound>> bound(const Json& schema, const char* key, bool exclusive,
                                           const At& at) {
    const auto value = schema.find(key);
    if (value == schema.end()) return std::optional<NumberBound>();
    auto parsed = value->is_number() ? NumberBound::parse(value->dump(), exclusive) : std::nullopt;
    if (!parsed) {
      return at.refuse_keyword(key, *value, "a number without exponent below 10^18");
    }
    return parsed;
  }

  Result<NodeId> compile_number(bool integer, const Json& schema, const At& at) {
    NumberRangeOf range;
    range.integer = integer;
    for (const bool exclusive : {false, true}) {
      const auto least = bound(schema, exclusive ? "exclusiveMinimum" : "minimum", exclusive, at);
      if (!least.ok()) return least.error();
      const auto most = bound(schema, exclusive ? "exclusiveMaximum" : "maximum", exclusive, at);
      if (!most.ok()) return most.error();
      if ((*least && range.least) || (*most && range.most)) {
        return at.error(
            "keyword \"exclusiveMinimum\" beside \"minimum\", or \"exclusiveMaximum\" "
            "beside \"maximum\", is not supported");
      }
      if (*least) range.least = *least;
      if (*most) range.most = *most;
    }
    const auto node = build_number(builder_, range, done());
    if (!node) return at.error("keywords \"minimum\" and \"maximum\" admit no number");
    return *node;
  }

  Result<NodeId> compile_array(const Json& schema, const At& at) {
    const auto least = count(schema, "minItems", 0, at);
    if (!least.ok()) return least.error();
    const auto most = count(schema, "maxItems", kUnbounded, at);
    if (!most.ok()) return most.error();
    std::vector<RuleId> prefix;
    if (const auto list = schema.find("prefixItems"); list != schema.end()) {
      if (!list->is_array()) return at.refuse_keyword("prefixItems", *list, "a list of schemas");
      for (std::size_t i = 0; i < list->size(); ++i) {
        const auto rule = compile_new((*list)[i], at.below(fmt::format("prefixItems/{}", i)));
        if (!rule.ok()) return rule.error();
        prefix.push_back(*rule);
      }
    }
    std::optional<RuleId> item = rules_.any_value();
    if (const auto items = schema.find("items"); items != schema.end()) {
      if (items->is_array()) {
        return at.refuse_keyword("items", *items, "one schema; a list belongs to \"prefixItems\"");
      }
      item.reset();
      if (*items != false) {
        const auto rule = compile_new(*items, at.below("items"));
        if (!rule.ok()) return rule.error();
        item = *rule;
      }
    }
    if (*least > *most || (!item && *least > prefix.size())) {
      return at.error("keyword \"minItems\" asks for more than the schema admits");
    }
    return builder_.call(rules_.array(prefix, item, *least, *most), done());
  }

  Result<NodeId> compile_object(const Json& schema, const At& at) {
    std::vector<JsonRules::Member> members;
    const auto properties = schema.find("properties");
    if (properties != schema.end()) {
      if (!properties->is_object())
        return at.refuse_keyword("properties", *properties, "an object");
      for (const auto& [name, property] : properties->items()) {
        const auto rule = compile_new(property, at.below("properties/" + name));
        if (!rule.ok()) return rule.error();
        members.push_back({name, *rule, false});
      }
    }
    std::optional<RuleId> other;
    const auto additional = schema.find("additionalProperties");
    if (additional != schema.end() && *additional != false) {
      const auto rule = compile_new(*additional, at.below("additionalProperties"));
      if (!rule.ok()) return rule.error();
      other = *rule;
    } else if (additional == schema.end() && members.empty()) {
      other = rules_.any_value();
    }
    if (const auto required = schema.find("required"); required != schema.end()) {
      if (!required->is_array()) return at.refuse_keyword("required", *required, "a list of names");
      std::map<std::string, std::size_t> places;
      for (std::size_t i = 0; i < members.size(); ++i) places[members[i].name] = i;
      for (const Json& name : *required) {
        if (!name.is_string()) return at.refuse_keyword("required", name, "a name");
        const std::string text = name.get<std::string>();
        const auto [place, fresh] = places.try_emplace(text, members.size());
        if (!fresh) {
          members[place->second].required = true;
          continue;
        }
        // Not described, so any value or what additionalProperties says.
        if (additional != schema.end() && *additional == false) {
          return at.refuse_keyword("required", name, "a name that is among the properties");
        }
        members.push_back({text, other.value_or(rules_.any_value()), true});
      }
    }
    const RuleId rule = builder_.declare(true);
    rules_.define_object(rule, members, other);
    return builder_.call(rule, done());
  }

  const Json* root_;
  ProgramBuilder builder_;
  JsonRules rules_;
  std::map<std::string, RuleId> references_;
  int schemas_ = 0;
};

}  // namespace

Result<Program> compile_schema(const Json& schema) {
  SchemaCompiler compiler(schema);
  return compiler.compile();
}

Result<Program> compile_around(const Json& root,
                               const std::function<Result<NodeId>(SchemaRules&)>& entry) {
  SchemaCompiler compiler(root);
  return compiler.compile_around(entry);
}

Result<Program> compile_any_object() {
  ProgramBuilder builder;
  JsonRules rules(builder);
  const NodeId object = builder.call(rules.any_object(), builder.done());
  const RuleId document = builder.rule(rules.whitespace(object));
  return std::move(builder).finish(document);
}

}  // namespace replayssm::grammar
