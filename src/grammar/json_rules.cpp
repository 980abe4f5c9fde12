#include "grammar/json_rules.h"

#include <algorithm>
#include <map>
#include <utility>

#include "grammar/regex.h"

namespace replayssm::grammar {
namespace {

ByteSet set_of(std::string_view bytes) {
  ByteSet set;
  for (const char c : bytes) set.set(static_cast<unsigned char>(c));
  return set;
}

constexpr std::string_view kHex = "0123456789abcdefABCDEF";

// What may stand raw in a JSON string.
const std::vector<CodeRange>& raw_characters() {
  static const std::vector<CodeRange> ranges = {
      {0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x10ffff}};
  return ranges;
}

// One character of a JSON string in any of its spellings. Surrogates come in pairs, because half a
// pair is no character.
NodeId any_character(ProgramBuilder& builder, NodeId next) {
  const auto hex = [&](NodeId then) { return builder.bytes(set_of(kHex), then); };
  const NodeId two = hex(hex(next));
  const NodeId low_half =
      builder.literal("\\u", builder.bytes(set_of("dD"), builder.bytes(set_of("cdefCDEF"), two)));
  const NodeId pair = builder.bytes(set_of("89abAB"), hex(hex(low_half)));
  const NodeId below = builder.bytes(set_of("01234567"), two);
  const NodeId unicode = builder.split(builder.bytes(set_of("0123456789abcefABCEF"), hex(two)),
                                       builder.bytes(set_of("dD"), builder.split(pair, below)));
  const NodeId escape = builder.byte(
      '\\', builder.split(builder.bytes(set_of("\"\\/bfnrt"), next), builder.byte('u', unicode)));
  return builder.split(*builder.characters(raw_characters(), next), escape);
}

// Any number of characters that `emit` builds, then `next`.
template <class Emit>
NodeId any_number_of(ProgramBuilder& builder, Emit emit, NodeId next) {
  const NodeId again = builder.placeholder();
  builder.resolve(again, builder.split(emit(again), next));
  return again;
}

// Texts with their beginnings shared, as a tree whose parents come before their children. Both the
// tree and what is made of it are walked without recursion: texts may be long.
template <class Text>
class Beginnings {
 public:
  struct Node {
    typename Text::value_type head{};  // what leads here; nothing to the root
    std::size_t parent = 0;
    bool whole = false;  // one of the texts ends here
  };
  struct Branch {
    typename Text::value_type head;
    NodeId node;
  };

  // No more nodes than a program may have; what would have more overflows the builder.
  explicit Beginnings(std::vector<Text> texts) : nodes_(1) {
    std::sort(texts.begin(), texts.end());
    std::vector<std::size_t> path = {0};  // of the text before
    Text before;
    for (const Text& text : texts) {
      const auto parted = std::mismatch(before.begin(), before.end(), text.begin(), text.end());
      path.resize(1 + static_cast<std::size_t>(parted.second - text.begin()));
      for (auto head = parted.second; head != text.end(); ++head) {
        if (nodes_.size() > ProgramBuilder::kMostNodes) {
          nodes_[path.back()].whole = true;
          return;
        }
        nodes_.push_back({*head, path.back(), false});
        path.push_back(nodes_.size() - 1);
      }
      nodes_[path.back()].whole = true;
      before = text;
    }
  }

  // `make(node, below)` is what may follow the texts that lead to `node`; `below` has each head
  // that may come next and what was made of its node. Returns what is made of the root.
  template <class Make>
  NodeId build(Make make) const {
    std::vector<std::vector<Branch>> below(nodes_.size());
    for (std::size_t i = nodes_.size(); i-- > 1;) {
      std::vector<Branch> branches = std::exchange(below[i], {});
      below[nodes_[i].parent].push_back({nodes_[i].head, make(nodes_[i], branches)});
    }
    return make(nodes_[0], below[0]);
  }

 private:
  std::vector<Node> nodes_;
};

std::u32string code_points(std::string_view text) {
  std::u32string points;
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    char32_t c = length == 1 ? lead : lead & (0x7fu >> length);
    for (std::size_t k = 1; k < length && i + k < text.size(); ++k) {
      c = (c << 6) | (static_cast<unsigned char>(text[i + k]) & 0x3fu);
    }
    points += c;
    i += length;
  }
  return points;
}

std::string text_of(const nlohmann::ordered_json& value) { return value.dump(); }

}  // namespace

JsonRules::JsonRules(ProgramBuilder& builder) : builder_(&builder) {
  const RuleId blank = builder.rule(builder.bytes(set_of(" \t"), builder.done()));
  const NodeId line_feed = builder.byte('\n', builder.done());
  const RuleId line_break = builder.rule(builder.split(line_feed, builder.byte('\r', line_feed)));
  const NodeId indented = builder.repeat(
      line_break, 1, kMostLineBreaks, builder.repeat(blank, 0, kMostIndentation, builder.done()));
  whitespace_ = builder.rule(builder.split(builder.repeat(blank, 0, 1, builder.done()), indented));
  character_ = builder.rule(any_character(builder, builder.done()));
  builder.mark_character(character_);
  const NodeId inside = any_number_of(
      builder, [&](NodeId next) { return any_character(builder, next); },
      builder.byte('"', builder.done()));
  string_ = builder.rule(builder.byte('"', inside));
  any_value_ = builder.declare();
  any_object_ = builder.declare(true);
  define_object(any_object_, {}, any_value_);
  any_array_ = array({}, any_value_, 0, kUnbounded);
  const NodeId done = builder.done();
  const std::vector<NodeId> values = {
      string(done),
      *build_number(builder, {}, done),
      builder.literal("true", done),
      builder.literal("false", done),
      builder.literal("null", done),
      builder.call(any_object_, done),
      builder.call(any_array_, done),
  };
  builder.define(any_value_, builder.any_of(values));
}

NodeId JsonRules::string(std::uint32_t least, std::uint32_t most, NodeId next) {
  if (least == 0 && most == kUnbounded) return string(next);
  const NodeId close = builder_->byte('"', next);
  return builder_->byte('"', builder_->repeat(character_, least, most, close));
}

NodeId JsonRules::constant(const nlohmann::ordered_json& value, NodeId next) {
  if (!value.is_structured()) return builder_->literal(text_of(value), next);
  const bool object = value.is_object();
  NodeId node = builder_->byte(object ? '}' : ']', next);
  if (!value.empty()) node = whitespace(node);
  std::vector<std::pair<std::string, const nlohmann::ordered_json*>> parts;
  for (const auto& [key, part] : value.items()) parts.emplace_back(key, &part);
  for (std::size_t i = parts.size(); i-- > 0;) {
    node = constant(*parts[i].second, node);
    if (object) {
      node = builder_->literal(text_of(parts[i].first), builder_->byte(':', whitespace(node)));
    }
    if (i > 0) node = builder_->byte(',', whitespace(node));
  }
  return builder_->byte(object ? '{' : '[', whitespace(node));
}

NodeId JsonRules::any_text(std::vector<std::string> texts, NodeId next) {
  using Tree = Beginnings<std::string>;
  const Tree tree(std::move(texts));
  return tree.build([&](const Tree::Node& at, const std::vector<Tree::Branch>& below) {
    std::vector<NodeId> alternatives;
    if (at.whole) alternatives.push_back(next);
    for (const auto& [head, node] : below) alternatives.push_back(builder_->byte(head, node));
    return builder_->any_of(alternatives);
  });
}

NodeId JsonRules::other_name(const std::vector<std::string>& names, NodeId next) {
  const auto raw = [&](NodeId then) { return *builder_->characters(raw_characters(), then); };
  const NodeId quote = builder_->byte('"', next);
  const NodeId rest = any_number_of(*builder_, raw, quote);
  // Another character than the heads of the names, and the end unless that is a name. Names have
  // few different sets of heads.
  std::map<std::pair<std::u32string, bool>, NodeId> leaves;
  const auto leave = [&](const std::u32string& heads, bool may_end) {
    const auto [known, fresh] = leaves.try_emplace({heads, may_end}, 0);
    if (!fresh) return known->second;
    std::vector<CodeRange> taken = complement(raw_characters());
    for (const char32_t head : heads) taken.push_back({head, head});
    const NodeId other = *builder_->characters(complement(taken), rest);
    return known->second = may_end ? builder_->split(other, quote) : other;
  };
  std::vector<std::u32string> points;
  for (const std::string& name : names) points.push_back(code_points(name));
  using Tree = Beginnings<std::u32string>;
  const Tree tree(std::move(points));
  const NodeId name = tree.build([&](const Tree::Node& at, const std::vector<Tree::Branch>& below) {
    std::u32string heads;
    std::vector<NodeId> alternatives;
    for (const auto& [head, node] : below) {
      heads += head;
      const CodeRange one{head, head};
      // What JSON cannot write raw does not come.
      const bool is_raw = head >= 0x20 && head != '"' && head != '\\';
      if (!is_raw) continue;
      if (const auto first = builder_->characters({&one, 1}, node)) alternatives.push_back(*first);
    }
    alternatives.push_back(leave(heads, !at.whole));
    return builder_->any_of(alternatives);
  });
  return builder_->byte('"', name);
}

RuleId JsonRules::array(const std::vector<RuleId>& prefix, std::optional<RuleId> item,
                        std::uint32_t least, std::uint32_t most) {
  const NodeId end = builder_->byte(']', builder_->done());
  const NodeId close = whitespace(end);
  const auto comma = [&](NodeId then) { return builder_->byte(',', whitespace(then)); };
  const auto count = static_cast<std::uint32_t>(prefix.size());
  if (!item) most = std::min(most, count);
  // `tail`: what follows the first i values.
  NodeId tail = close;
  if (item && most > count) {
    const std::uint32_t first = std::max(count, 1u);
    const RuleId element = builder_->rule(comma(builder_->call(*item, builder_->done())));
    const std::uint32_t more = most == kUnbounded ? kUnbounded : most - first;
    tail = builder_->repeat(element, least > first ? least - first : 0, more, close);
  }
  std::optional<NodeId> first_value;
  if (count == 0 && item && most > 0) first_value = builder_->call(*item, tail);
  for (std::uint32_t i = std::min(count, most); i-- > 0;) {
    const NodeId value = builder_->call(prefix[i], tail);
    if (i == 0) {
      first_value = value;
    } else {
      tail = i >= least ? builder_->split(comma(value), close) : comma(value);
    }
  }
  NodeId body = first_value.value_or(end);
  if (first_value && least == 0) body = builder_->split(*first_value, end);
  return builder_->rule(builder_->byte('[', whitespace(body)), true);
}

NodeId JsonRules::member(const std::string& name, RuleId value, NodeId next) {
  const NodeId after = builder_->byte(':', whitespace(builder_->call(value, next)));
  return builder_->literal(text_of(name), after);
}

void JsonRules::define_object(RuleId rule, const std::vector<Member>& members,
                              std::optional<RuleId> other) {
  const NodeId end = builder_->byte('}', builder_->done());
  const NodeId close = whitespace(end);
  const auto comma = [&](NodeId then) { return builder_->byte(',', whitespace(then)); };
  // Three places in front of member i: nothing written yet, a member written, a comma written.
  NodeId empty = end;
  NodeId written = close;
  std::optional<NodeId> after_comma;
  if (other) {
    std::vector<std::string> names;
    for (const Member& one : members) names.push_back(one.name);
    const NodeId value = builder_->call(*other, builder_->done());
    const NodeId colon = builder_->byte(':', whitespace(value));
    const RuleId one_more =
        builder_->rule(names.empty() ? string(colon) : other_name(names, colon));
    const NodeId again = builder_->placeholder();
    after_comma = builder_->call(one_more, again);
    builder_->resolve(again, builder_->split(comma(*after_comma), close));
    written = again;
    empty = builder_->split(*after_comma, end);
  }
  bool more_required = false;
  for (std::size_t i = members.size(); i-- > 0;) {
    const Member& one = members[i];
    more_required |= one.required;
    const NodeId here = member(one.name, one.value, written);
    after_comma = one.required || !after_comma ? here : builder_->split(here, *after_comma);
    empty = one.required ? here : builder_->split(here, empty);
    written = more_required ? comma(*after_comma) : builder_->split(comma(*after_comma), close);
  }
  builder_->define(rule, builder_->byte('{', whitespace(empty)));
}

}  // namespace replayssm::grammar
