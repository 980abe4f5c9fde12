#include <algorithm>
#include <map>
#include <tuple>

#include "grammar/json_rules.h"

namespace replayssm::grammar {
namespace {

constexpr std::uint32_t kWholeDigits = 18;
constexpr std::size_t kFractionDigits = 20;
constexpr std::uint64_t kMostWhole = 999'999'999'999'999'999;

ByteSet digits(int first, int last) {
  ByteSet set;
  for (int d = first; d <= last; ++d) set.set(static_cast<std::size_t>('0' + d));
  return set;
}

int digit_at(std::string_view text, std::size_t at) {
  return at < text.size() ? text[at] - '0' : 0;
}

// Digit strings between two bounds of equal length, digit by digit: while the digits so far equal
// a bound's (`low`, `high`), that bound limits the next one.
class DigitRange {
 public:
  DigitRange(ProgramBuilder& builder, std::string low, std::string high, NodeId next)
      : builder_(&builder), low_(std::move(low)), high_(std::move(high)), next_(next) {}

  NodeId build(std::size_t at, bool low, bool high) {
    if (at == low_.size()) return next_;
    const auto key = std::tuple(at, low, high);
    if (const auto known = built_.find(key); known != built_.end()) return known->second;
    const int first = low ? low_[at] - '0' : 0;
    const int last = high ? high_[at] - '0' : 9;
    std::vector<NodeId> alternatives;
    const auto add = [&](int from, int to, bool still_low, bool still_high) {
      if (from > to) return;
      alternatives.push_back(
          builder_->bytes(digits(from, to), build(at + 1, still_low, still_high)));
    };
    if (first == last) {
      add(first, last, low, high);
    } else {
      if (low) add(first, first, true, false);
      add(first + (low ? 1 : 0), last - (high ? 1 : 0), false, false);
      if (high) add(last, last, false, true);
    }
    return built_[key] = builder_->any_of(alternatives);
  }

 private:
  ProgramBuilder* builder_;
  std::string low_;
  std::string high_;
  NodeId next_;
  std::map<std::tuple<std::size_t, bool, bool>, NodeId> built_;
};

// Whole numbers from `least` to `most` without leading zeros, then `next`.
std::optional<NodeId> whole_numbers(ProgramBuilder& builder, std::uint64_t least,
                                    std::uint64_t most, NodeId next) {
  std::vector<NodeId> alternatives;
  std::uint64_t from = 0;
  for (std::uint64_t to = 9;; to = to * 10 + 9) {
    const std::uint64_t low = std::max(from, least);
    const std::uint64_t high = std::min(to, most);
    if (low <= high) {
      DigitRange range(builder, std::to_string(low), std::to_string(high), next);
      alternatives.push_back(range.build(0, true, true));
    }
    if (to >= kMostWhole) break;
    from = to + 1;
  }
  if (alternatives.empty()) return std::nullopt;
  return builder.any_of(alternatives);
}

// What may follow the whole part of a number: nothing or a fraction. `low` and `high` say whether
// the whole part equals that bound's, which then limits the fraction.
class FractionRange {
 public:
  FractionRange(ProgramBuilder& builder, const std::optional<NumberBound>& least,
                const std::optional<NumberBound>& most, NodeId next)
      : builder_(&builder), next_(next) {
    if (least) low_ = *least;
    if (most) high_ = *most;
  }

  std::optional<NodeId> build(bool low, bool high) {
    const auto tail = digits_from(0, low, high);
    std::vector<NodeId> alternatives;
    if (may_end(0, low, high)) alternatives.push_back(next_);
    if (tail) alternatives.push_back(builder_->byte('.', *tail));
    if (alternatives.empty()) return std::nullopt;
    return builder_->any_of(alternatives);
  }

 private:
  // Whether the value is within the bounds if zeros follow the first `at` digits.
  bool may_end(std::size_t at, bool low, bool high) const {
    const bool above = !low || (at >= low_.fraction.size() && !low_.exclusive);
    const bool below = !high || at < high_.fraction.size() || !high_.exclusive;
    return above && below;
  }

  // At least one digit.
  std::optional<NodeId> digits_from(std::size_t at, bool low, bool high) {
    if (at == kFractionDigits) return std::nullopt;
    const auto key = std::tuple(at, low, high);
    if (const auto known = built_.find(key); known != built_.end()) return known->second;
    const int first = low ? digit_at(low_.fraction, at) : 0;
    const int last = high ? digit_at(high_.fraction, at) : 9;
    std::vector<NodeId> alternatives;
    const auto add = [&](int from, int to, bool still_low, bool still_high) {
      if (from > to) return;
      const auto more = digits_from(at + 1, still_low, still_high);
      const bool end = may_end(at + 1, still_low, still_high);
      if (!more && !end) return;
      NodeId after = more ? *more : next_;
      if (more && end) after = builder_->split(*more, next_);
      alternatives.push_back(builder_->bytes(digits(from, to), after));
    };
    if (first == last) {
      add(first, last, low, high);
    } else {
      if (low) add(first, first, true, false);
      add(first + (low ? 1 : 0), last - (high ? 1 : 0), false, false);
      if (high) add(last, last, false, true);
    }
    std::optional<NodeId> node;
    if (!alternatives.empty()) node = builder_->any_of(alternatives);
    return built_[key] = node;
  }

  ProgramBuilder* builder_;
  NumberBound low_;
  NumberBound high_;
  NodeId next_;
  std::map<std::tuple<std::size_t, bool, bool>, std::optional<NodeId>> built_;
};

// Numbers without sign between bounds that are not negative.
std::optional<NodeId> magnitudes(ProgramBuilder& builder, const std::optional<NumberBound>& least,
                                 const std::optional<NumberBound>& most, bool integer,
                                 NodeId next) {
  std::uint64_t low = least ? least->whole : 0;
  std::uint64_t high = most ? most->whole : kMostWhole;
  if (integer) {
    if (least && (!least->fraction.empty() || least->exclusive)) ++low;
    if (most && most->fraction.empty() && most->exclusive) {
      if (high == 0) return std::nullopt;
      --high;
    }
    return whole_numbers(builder, low, high, next);
  }
  FractionRange fraction(builder, least, most, next);
  std::vector<NodeId> alternatives;
  const auto add = [&](std::uint64_t from, std::uint64_t to, bool at_low, bool at_high) {
    if (from > to) return;
    const auto tail = fraction.build(at_low, at_high);
    if (!tail) return;
    if (const auto node = whole_numbers(builder, from, to, *tail)) alternatives.push_back(*node);
  };
  const bool limited_low = least.has_value();
  const bool limited_high = most.has_value();
  if (low == high) {
    add(low, low, limited_low, limited_high);
  } else if (low < high) {
    if (limited_low) add(low, low, true, false);
    add(low + (limited_low ? 1 : 0), high - (limited_high ? 1 : 0), false, false);
    if (limited_high) add(high, high, false, true);
  }
  if (alternatives.empty()) return std::nullopt;
  return builder.any_of(alternatives);
}

NodeId any_number(ProgramBuilder& builder, bool integer, NodeId next) {
  const RuleId digit = builder.rule(builder.bytes(digits(0, 9), builder.done()));
  NodeId tail = next;
  if (!integer) {
    // Three digits only behind a minus: 1e-300 is a double, 1e300 after 18 digits is none.
    ByteSet e;
    e.set('e').set('E');
    const NodeId small = builder.byte('-', builder.repeat(digit, 1, 3, next));
    const NodeId two = builder.repeat(digit, 1, 2, next);
    const NodeId large = builder.split(builder.byte('+', two), two);
    const NodeId exponent = builder.bytes(e, builder.split(small, large));
    tail = builder.split(exponent, next);
    const NodeId behind_point = builder.repeat(digit, 1, kFractionDigits, tail);
    tail = builder.split(builder.byte('.', behind_point), tail);
  }
  const NodeId more = builder.repeat(digit, 0, kWholeDigits - 1, tail);
  const NodeId whole = builder.split(builder.byte('0', tail), builder.bytes(digits(1, 9), more));
  return builder.split(builder.byte('-', whole), whole);
}

}  // namespace

std::optional<NumberBound> NumberBound::parse(std::string_view text, bool exclusive) {
  NumberBound bound;
  bound.exclusive = exclusive;
  if (text.starts_with('-')) {
    bound.negative = true;
    text.remove_prefix(1);
  }
  const std::size_t point = std::min(text.find('.'), text.size());
  if (point == 0 || point > kWholeDigits) return std::nullopt;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i != point && (text[i] < '0' || text[i] > '9')) return std::nullopt;
    if (i < point) bound.whole = bound.whole * 10 + static_cast<std::uint64_t>(text[i] - '0');
  }
  if (point < text.size()) bound.fraction = text.substr(point + 1);
  while (bound.fraction.ends_with('0')) bound.fraction.pop_back();
  if (bound.fraction.size() >= kFractionDigits) return std::nullopt;
  if (bound.is_zero()) bound.negative = false;
  return bound;
}

std::optional<NodeId> build_number(ProgramBuilder& builder, const NumberRangeOf& range,
                                   NodeId next) {
  if (!range.bounded()) return any_number(builder, range.integer, next);
  std::vector<NodeId> alternatives;
  const auto& least = range.least;
  const auto& most = range.most;
  // From zero up: a lower bound below zero does not limit it, an upper one excludes it.
  if (!most || !most->negative) {
    const auto low = least && !least->negative ? least : std::nullopt;
    if (const auto node = magnitudes(builder, low, most, range.integer, next)) {
      alternatives.push_back(*node);
    }
  }
  // Below zero: the magnitudes lie between the bounds turned round. Zero is written without a sign.
  if (!least || least->negative) {
    std::optional<NumberBound> low = most && most->negative ? most : std::nullopt;
    if (!low) low = NumberBound{false, 0, {}, true};
    if (const auto node = magnitudes(builder, low, least, range.integer, next)) {
      alternatives.push_back(builder.byte('-', *node));
    }
  }
  if (alternatives.empty()) return std::nullopt;
  return builder.any_of(alternatives);
}

}  // namespace replayssm::grammar
