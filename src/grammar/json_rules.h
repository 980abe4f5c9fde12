// The parts of JSON as pieces of a program.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/program_builder.h"

namespace replayssm::grammar {

// A bound of a number, as decimal text without exponent.
struct NumberBound {
  bool negative = false;
  std::uint64_t whole = 0;  // below 10^18
  std::string fraction;     // digits without trailing zeros
  bool exclusive = false;

  bool is_zero() const { return whole == 0 && fraction.empty(); }
  // Nothing for text with an exponent or more than 18 digits before the point.
  static std::optional<NumberBound> parse(std::string_view text, bool exclusive);
};

struct NumberRangeOf {
  std::optional<NumberBound> least;
  std::optional<NumberBound> most;
  bool integer = false;

  bool bounded() const { return least || most; }
};

// Numbers within bounds, then `next`. Nothing if there is none. Plain decimals of at most 18 digits
// before the point and 20 behind it; without bounds also an exponent that a double can hold.
std::optional<NodeId> build_number(ProgramBuilder& builder, const NumberRangeOf& range,
                                   NodeId next);

// Rules that every schema may share. White space is where and what people write: after `{`, `[`,
// `,` and `:` and before `}` and `]`, one space or tab, or up to kMostLineBreaks and an indentation
// of up to kMostIndentation of them. A model that prefers it to saying something soon has to.
class JsonRules {
 public:
  static constexpr std::uint32_t kMostLineBreaks = 2;
  static constexpr std::uint32_t kMostIndentation = 32;

  explicit JsonRules(ProgramBuilder& builder);

  NodeId whitespace(NodeId next) { return builder_->call(whitespace_, next); }
  // Any string / of that many characters (a surrogate pair's escapes are one).
  NodeId string(NodeId next) { return builder_->call(string_, next); }
  NodeId string(std::uint32_t least, std::uint32_t most, NodeId next);
  // This value and no other; strings in their shortest form.
  NodeId constant(const nlohmann::ordered_json& value, NodeId next);
  // Any of the texts, sharing their beginnings. Precondition: at least one.
  NodeId any_text(std::vector<std::string> texts, NodeId next);
  // A member name, as raw characters, that is none of `names`, and its quotes.
  NodeId other_name(const std::vector<std::string>& names, NodeId next);

  RuleId any_value() const { return any_value_; }
  RuleId any_object() const { return any_object_; }
  RuleId any_array() const { return any_array_; }

  // `[`, at least `least` and at most `most` values of `item`, `]`; the first values are `prefix`.
  RuleId array(const std::vector<RuleId>& prefix, std::optional<RuleId> item, std::uint32_t least,
               std::uint32_t most);

  struct Member {
    std::string name;
    RuleId value = 0;
    bool required = false;
  };
  // An object whose members come in this order, then any number of others with values of `other`.
  void define_object(RuleId rule, const std::vector<Member>& members, std::optional<RuleId> other);

 private:
  NodeId member(const std::string& name, RuleId value, NodeId next);

  ProgramBuilder* builder_;
  RuleId whitespace_;
  RuleId character_;
  RuleId string_;
  RuleId any_value_;
  RuleId any_object_;
  RuleId any_array_;
};

}  // namespace replayssm::grammar
