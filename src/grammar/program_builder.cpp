#include "grammar/program_builder.h"

#include <algorithm>
#include <array>

namespace replayssm::grammar {
namespace {

// One row of the table of well-formed UTF-8: ranges of bytes, one for each place.
struct ByteRanges {
  std::array<std::pair<unsigned, unsigned>, 4> at;
  std::size_t length = 0;
};

std::array<unsigned, 4> encode(char32_t c, std::size_t length) {
  std::array<unsigned, 4> out{};
  if (length == 1) {
    out[0] = c;
    return out;
  }
  for (std::size_t i = length; i-- > 1; c >>= 6) out[i] = 0x80u | (c & 0x3fu);
  out[0] = (0xf00u >> length & 0xffu) | c;
  return out;
}

// Cuts [first, last] so that in each piece every place has an independent range of bytes.
void cut_ranges(char32_t first, char32_t last, std::size_t length, std::vector<ByteRanges>& out) {
  for (std::size_t free = 1; free < length; ++free) {
    const char32_t mask = (char32_t{1} << (6 * free)) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      cut_ranges(first, first | mask, length, out);
      cut_ranges((first | mask) + 1, last, length, out);
      return;
    }
    if ((last & mask) != mask) {
      cut_ranges(first, (last & ~mask) - 1, length, out);
      cut_ranges(last & ~mask, last, length, out);
      return;
    }
  }
  const auto low = encode(first, length);
  const auto high = encode(last, length);
  ByteRanges piece;
  piece.length = length;
  for (std::size_t i = 0; i < length; ++i) piece.at[i] = {low[i], high[i]};
  out.push_back(piece);
}

ByteSet range_set(unsigned first, unsigned last) {
  ByteSet set;
  for (unsigned b = first; b <= last; ++b) set.set(b);
  return set;
}

}  // namespace

ProgramBuilder::ProgramBuilder() { program_.nodes.emplace_back(); }

NodeId ProgramBuilder::add(const Node& node) {
  if (program_.nodes.size() >= kMostNodes) {
    overflow_ = true;
    return done();
  }
  program_.nodes.push_back(node);
  return static_cast<NodeId>(program_.nodes.size() - 1);
}

NodeId ProgramBuilder::bytes(const ByteSet& set, NodeId next) {
  const auto [entry, fresh] =
      set_ids_.try_emplace(set.to_string(), static_cast<std::uint32_t>(program_.sets.size()));
  if (fresh) program_.sets.push_back(set);
  Node node;
  node.kind = Node::Kind::bytes;
  node.set = entry->second;
  node.next = next;
  return add(node);
}

NodeId ProgramBuilder::byte(char c, NodeId next) {
  const auto value = static_cast<unsigned char>(c);
  return bytes(range_set(value, value), next);
}

NodeId ProgramBuilder::literal(std::string_view text, NodeId next) {
  for (std::size_t i = text.size(); i-- > 0;) next = byte(text[i], next);
  return next;
}

std::optional<NodeId> ProgramBuilder::characters(std::span<const CodeRange> ranges, NodeId next) {
  constexpr std::array<CodeRange, 5> kLengths = {
      {{0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, 0x10ffff}}};
  constexpr std::array<std::size_t, 5> kBytes = {1, 2, 3, 3, 4};
  ByteSet single;
  std::vector<ByteRanges> pieces;
  for (const CodeRange& range : ranges) {
    for (std::size_t i = 0; i < kLengths.size(); ++i) {
      const char32_t first = std::max(range.first, kLengths[i].first);
      const char32_t last = std::min(range.last, kLengths[i].last);
      if (first > last) continue;
      if (kBytes[i] == 1) {
        single |= range_set(first, last);
      } else {
        cut_ranges(first, last, kBytes[i], pieces);
      }
    }
  }
  std::vector<NodeId> alternatives;
  if (single.any()) alternatives.push_back(bytes(single, next));
  // Pieces with equal tails share their nodes.
  std::map<std::pair<std::string, NodeId>, NodeId> shared;
  for (const ByteRanges& piece : pieces) {
    NodeId at = next;
    for (std::size_t i = piece.length; i-- > 0;) {
      const ByteSet set = range_set(piece.at[i].first, piece.at[i].second);
      const auto [entry, fresh] = shared.try_emplace({set.to_string(), at}, 0);
      if (fresh) entry->second = bytes(set, at);
      at = entry->second;
    }
    alternatives.push_back(at);
  }
  if (alternatives.empty()) return std::nullopt;
  std::sort(alternatives.begin(), alternatives.end());
  alternatives.erase(std::unique(alternatives.begin(), alternatives.end()), alternatives.end());
  return any_of(alternatives);
}

NodeId ProgramBuilder::split(NodeId first, NodeId second) {
  if (first == second) return first;
  Node node;
  node.kind = Node::Kind::split;
  node.next = first;
  node.other = second;
  return add(node);
}

NodeId ProgramBuilder::any_of(std::span<const NodeId> alternatives) {
  NodeId node = alternatives.back();
  for (std::size_t i = alternatives.size() - 1; i-- > 0;) node = split(alternatives[i], node);
  return node;
}

NodeId ProgramBuilder::call(RuleId rule, NodeId next) {
  Node node;
  node.kind = Node::Kind::call;
  node.rule = rule;
  node.next = next;
  return add(node);
}

NodeId ProgramBuilder::repeat(RuleId repeated, std::uint32_t least, std::uint32_t most,
                              NodeId next) {
  if (most == 0) return next;
  if (least == 1 && most == 1) return call(repeated, next);
  Node node;
  node.kind = Node::Kind::repeat;
  node.rule = repeated;
  node.least = least;
  node.most = most;
  // The counter lives in the frame, so each repetition is a rule of its own.
  node.next = done();
  return call(rule(add(node)), next);
}

NodeId ProgramBuilder::placeholder() {
  Node node;
  node.kind = Node::Kind::split;
  return add(node);
}

void ProgramBuilder::resolve(NodeId placeholder, NodeId target) {
  if (placeholder == done()) return;  // overflow
  program_.nodes[placeholder].next = target;
  program_.nodes[placeholder].other = target;
}

RuleId ProgramBuilder::declare(bool nests) {
  program_.rules.push_back({done(), nests, kEndless});
  return static_cast<RuleId>(program_.rules.size() - 1);
}

RuleId ProgramBuilder::rule(NodeId entry, bool nests) {
  const RuleId id = declare(nests);
  define(id, entry);
  return id;
}

Result<Program> ProgramBuilder::finish(RuleId root) && {
  program_.root = root;
  auto& nodes = program_.nodes;
  auto& rules = program_.rules;
  nodes[done()].nesting = 0;
  for (bool changed = true; changed;) {
    changed = false;
    const auto lower = [&](std::uint32_t& value, std::uint32_t to) {
      if (to >= value) return;
      value = to;
      changed = true;
    };
    // What follows a node was mostly added before it, so few rounds suffice.
    for (Node& node : nodes) {
      const std::uint32_t after = nodes[node.next].nesting;
      switch (node.kind) {
        case Node::Kind::bytes:
          lower(node.nesting, after);
          break;
        case Node::Kind::split:
          lower(node.nesting, std::min(after, nodes[node.other].nesting));
          break;
        case Node::Kind::call:
          lower(node.nesting, std::max(after, rules[node.rule].nesting));
          break;
        case Node::Kind::repeat:
          lower(node.nesting, node.least == 0 ? after : std::max(after, rules[node.rule].nesting));
          break;
        case Node::Kind::done:
          break;
      }
    }
    for (Rule& one : rules) {
      const std::uint32_t entry = nodes[one.entry].nesting;
      if (entry != kEndless) lower(one.nesting, entry + (one.nests ? 1 : 0));
    }
  }
  if (rules[root].nesting == kEndless) {
    return Error{"schema: it refers to itself without end, so that no finite document fits it"};
  }
  return std::move(program_);
}

}  // namespace replayssm::grammar
