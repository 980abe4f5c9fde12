// Builds programs back to front: every piece is given the node that follows it and returns its own
// first node.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "grammar/program.h"

namespace replayssm::grammar {

// Inclusive range of code points.
struct CodeRange {
  char32_t first = 0;
  char32_t last = 0;
};

class ProgramBuilder {
 public:
  // A program may have this many nodes; past it every piece is the node `done` and overflow() says
  // so.
  static constexpr std::size_t kMostNodes = 200'000;

  ProgramBuilder();

  // The end of the rule being built; one node serves all rules.
  NodeId done() const { return 0; }

  NodeId bytes(const ByteSet& set, NodeId next);
  NodeId byte(char c, NodeId next);
  NodeId literal(std::string_view text, NodeId next);
  // Characters of the ranges in UTF-8; surrogates are left out. Nothing if no character is left.
  std::optional<NodeId> characters(std::span<const CodeRange> ranges, NodeId next);
  NodeId split(NodeId first, NodeId second);
  // Precondition: at least one.
  NodeId any_of(std::span<const NodeId> alternatives);
  NodeId call(RuleId rule, NodeId next);
  // `rule`, `least` to `most` times (kUnbounded: without end).
  NodeId repeat(RuleId rule, std::uint32_t least, std::uint32_t most, NodeId next);
  // A node to be known before what it stands for: loops.
  NodeId placeholder();
  void resolve(NodeId placeholder, NodeId target);

  // A rule to be known before it is built: recursion.
  RuleId declare(bool nests = false);
  void define(RuleId rule, NodeId entry) { program_.rules[rule].entry = entry; }
  RuleId rule(NodeId entry, bool nests = false);

  // Program::character.
  void mark_character(RuleId rule) { program_.character = rule; }

  bool overflow() const { return overflow_; }

  // Computes the nesting of every node. The error says that no finite text exists.
  Result<Program> finish(RuleId root) &&;

 private:
  NodeId add(const Node& node);

  Program program_;
  std::map<std::string, std::uint32_t> set_ids_;
  bool overflow_ = false;
};

}  // namespace replayssm::grammar
