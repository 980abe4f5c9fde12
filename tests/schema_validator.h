// A plain JSON schema validator, independent of src/grammar: what the keywords mean, by recursion
// over the document.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

namespace replayssm::testing {

class SchemaValidator {
 public:
  using Json = nlohmann::ordered_json;

  explicit SchemaValidator(Json root) : root_(std::move(root)) {}

  bool valid(const Json& document) const { return valid(root_, document); }

 private:
  static std::size_t length(const std::string& text) {
    std::size_t characters = 0;
    for (const char c : text) characters += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    return characters;
  }

  static bool has_type(const std::string& type, const Json& d) {
    if (type == "integer") return d.is_number() && d.get<double>() == std::floor(d.get<double>());
    if (type == "number") return d.is_number();
    return type == d.type_name();
  }

  static bool is_date(const std::string& text) {
    int y = 0, m = 0, d = 0, used = 0;
    if (std::sscanf(text.c_str(), "%4d-%2d-%2d%n", &y, &m, &d, &used) != 3 || used != 10) {
      return false;
    }
    constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const int leap = m == 2 && (y % 4 == 0 && (y % 100 != 0 || y % 400 == 0)) ? 1 : 0;
    return text.size() == 10 && m >= 1 && m <= 12 && d >= 1 && d <= kDays[m - 1] + leap;
  }

  bool valid(const Json& schema, const Json& d) const {
    if (schema.is_boolean()) return schema.get<bool>();
    for (const auto& [key, value] : schema.items()) {
      if (!keyword(schema, key, value, d)) return false;
    }
    return true;
  }

  std::size_t count_valid(const Json& schemas, const Json& d) const {
    std::size_t count = 0;
    for (const Json& one : schemas) count += valid(one, d);
    return count;
  }

  bool keyword(const Json& schema, const std::string& key, const Json& v, const Json& d) const {
    if (key == "$ref") {
      return valid(root_.at(Json::json_pointer(v.get<std::string>().substr(1))), d);
    }
    if (key == "type") {
      if (v.is_string()) return has_type(v, d);
      return std::any_of(v.begin(), v.end(), [&](const Json& t) { return has_type(t, d); });
    }
    if (key == "const") return d == v;
    if (key == "enum") return std::find(v.begin(), v.end(), d) != v.end();
    if (key == "anyOf") return count_valid(v, d) > 0;
    if (key == "oneOf") return count_valid(v, d) == 1;
    if (key == "allOf") return count_valid(v, d) == v.size();
    if (d.is_string()) return string_keyword(key, v, d.get<std::string>());
    if (d.is_number()) {
      if (key == "minimum") return d.get<double>() >= v.get<double>();
      if (key == "maximum") return d.get<double>() <= v.get<double>();
      if (key == "exclusiveMinimum") return d.get<double>() > v.get<double>();
      if (key == "exclusiveMaximum") return d.get<double>() < v.get<double>();
    }
    if (d.is_array()) return array_keyword(schema, key, v, d);
    if (d.is_object()) return object_keyword(schema, key, v, d);
    return true;
  }

  static bool string_keyword(const std::string& key, const Json& v, const std::string& text) {
    if (key == "minLength") return length(text) >= v.get<std::size_t>();
    if (key == "maxLength") return length(text) <= v.get<std::size_t>();
    if (key == "pattern") return std::regex_search(text, std::regex(v.get<std::string>()));
    if (key == "format" && v == "date") return is_date(text);
    if (key == "format" && v == "date-time") {
      return is_date(text.substr(0, 10)) && text.size() > 19 && text[10] == 'T';
    }
    return true;
  }

  bool array_keyword(const Json& schema, const std::string& key, const Json& v,
                     const Json& d) const {
    if (key == "minItems") return d.size() >= v.get<std::size_t>();
    if (key == "maxItems") return d.size() <= v.get<std::size_t>();
    const std::size_t prefix = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
    for (std::size_t i = 0; i < d.size(); ++i) {
      if (key == "prefixItems" && i < prefix && !valid(v[i], d[i])) return false;
      if (key == "items" && i >= prefix && !valid(v, d[i])) return false;
    }
    return true;
  }

  bool object_keyword(const Json& schema, const std::string& key, const Json& v,
                      const Json& d) const {
    if (key == "required") {
      return std::all_of(v.begin(), v.end(),
                         [&](const Json& name) { return d.contains(name.get<std::string>()); });
    }
    for (const auto& [name, value] : d.items()) {
      const bool described = schema.contains("properties") && schema["properties"].contains(name);
      if (key == "properties" && described && !valid(v[name], value)) return false;
      if (key == "additionalProperties" && !described && !valid(v, value)) return false;
    }
    return true;
  }

  Json root_;
};

}  // namespace replayssm::testing
