#include "text/json_text.h"

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace replayssm {
namespace {

using Json = nlohmann::ordered_json;

// "[json.exception.parse_error.101] parse error at line 1, column 2: ..." without the bracket.
std::string words_of(const Json::exception& error) {
  const std::string text = error.what();
  const std::size_t end = text.find("] ");
  return end == std::string::npos ? text : text.substr(end + 2);
}

// An object that grows gets an index of its names.
class Builder : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  // Of two members of one name the last counts, at the place of the first.
  bool key(string_t& name) override {
    Level& level = open_.back();
    auto& members = level.json->get_ref<Json::object_t&>();
    if (members.size() == kFewMembers) {
      for (std::size_t i = 0; i < members.size(); ++i)
        level.index.emplace(members.begin()[static_cast<std::ptrdiff_t>(i)].first, i);
    }
    std::size_t at = members.size();
    if (members.size() < kFewMembers) {
      const auto found = members.find(name);
      at = static_cast<std::size_t>(found - members.begin());
    } else if (const auto found = level.index.find(name); found != level.index.end()) {
      at = found->second;
    } else {
      level.index.emplace(name, at);
    }
    if (at == members.size()) members.emplace_back(std::move(name), nullptr);
    level.member = at;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    error_ = words_of(error);
    return false;
  }

  Json take() { return std::move(root_); }
  const std::string& error() const { return error_; }

 private:
  static constexpr std::size_t kFewMembers = 32;

  struct Level {
    Json* json;
    std::size_t member = 0;  // of an object: the one whose value comes next
    std::unordered_map<std::string, std::size_t> index = {};
  };

  Json& place(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    Level& level = open_.back();
    if (level.json->is_array()) {
      level.json->push_back(std::move(value));
      return level.json->back();
    }
    auto& members = level.json->get_ref<Json::object_t&>();
    return members.begin()[static_cast<std::ptrdiff_t>(level.member)].second = std::move(value);
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    open_.push_back({&place(std::move(value))});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Level> open_;
  std::string error_;
};

}  // namespace

Result<Json> parse_json_text(std::string_view text) {
  Builder builder;
  if (!Json::sax_parse(text, &builder)) return Error{builder.error()};
  return builder.take();
}

}  // namespace replayssm
