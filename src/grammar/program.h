// A grammar as a program: rules over bytes, each a small nondeterministic automaton that may call
// other rules. The calls make it a pushdown automaton; the stack is the automaton's (automaton.h).
#pragma once

#include <bitset>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace replayssm::grammar {

using ByteSet = std::bitset<256>;
using NodeId = std::uint32_t;
using RuleId = std::uint32_t;

inline constexpr std::uint32_t kUnbounded = std::numeric_limits<std::uint32_t>::max();
// The nesting that a place needs which no finite text completes.
inline constexpr std::uint32_t kEndless = std::numeric_limits<std::uint32_t>::max();

struct Node {
  enum class Kind : std::uint8_t {
    bytes,   // one byte of `set`, then `next`
    split,   // `next` or `other`
    call,    // all of `rule`, then `next`
    repeat,  // `rule` at least `least` and at most `most` times, then `next`; counts in its frame
    done,    // the end of the rule
  };

  Kind kind = Kind::done;
  NodeId next = 0;
  NodeId other = 0;
  RuleId rule = 0;
  std::uint32_t set = 0;
  std::uint32_t least = 0;
  std::uint32_t most = 0;
  // How many more arrays and objects a text must open, at least, to get from here to the rule's
  // end; kEndless where no text gets there.
  std::uint32_t nesting = kEndless;
};

struct Rule {
  NodeId entry = 0;
  bool nests = false;  // an array or object: counts towards the depth of the text
  std::uint32_t nesting = kEndless;
};

struct Program {
  std::vector<Node> nodes;
  std::vector<Rule> rules;
  std::vector<ByteSet> sets;
  RuleId root = 0;
  // One character of a JSON string in any spelling, as strings with a length repeat it.
  std::optional<RuleId> character;
};

}  // namespace replayssm::grammar
