// Which stored token sequences share how long a prefix with a prompt.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/strong_id.h"

namespace replayssm {

// A number that the tree's owner gives an entry; unique within a tree.
using EntryId = StrongId<struct EntryTag>;

// A radix tree over token sequences: a node is where two of them part or where one ends. Holds ids
// only, no memory of sequences. Not thread-safe.
class PrefixTree {
 public:
  PrefixTree();
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // The entry stored for exactly these tokens, or no id.
  EntryId at(std::span<const TokenId> tokens) const;
  // Precondition: nothing is stored for these tokens; there is at least one. When it throws,
  // nothing has changed.
  void insert(std::span<const TokenId> tokens, EntryId entry);
  // Precondition: `entry` was inserted. Its tokens, where nothing else needs them, are forgotten.
  // Does not throw.
  void erase(EntryId entry);
  // The nearest entry that continues this one, if all sequences that do go there; none where they
  // part first, or where nothing goes on. Precondition as erase().
  EntryId next_below(EntryId entry) const;
  // The tokens that the entry was inserted with. Precondition as erase().
  std::vector<TokenId> tokens_of(EntryId entry) const;

  struct Best {
    EntryId entry;  // none if no entry has a value above 0
    int value = 0;
    int common = 0;   // tokens that entry and prompt share
    int longest = 0;  // tokens that the prompt shares with any entry
  };
  // The entry with the largest value. `value` is given an entry and how many tokens it shares with
  // the prompt, and returns at most that number. Among equal values the entry that shares most
  // wins, then the shortest one. Costs the nodes along the prompt and those that could win.
  Best best(std::span<const TokenId> prompt,
            const std::function<int(EntryId entry, int common)>& value) const;

  int entries() const { return static_cast<int>(nodes_.size()); }

 private:
  struct Node;

  Node* descend(std::span<const TokenId> tokens) const;
  Node* make_node(std::span<const TokenId> tokens);
  static void merge_with_child(Node& node);
  void visit(const Node& node, int common,
             const std::function<int(EntryId entry, int common)>& value, Best& best) const;

  std::unique_ptr<Node> root_;
  std::map<EntryId, Node*> nodes_;
};

}  // namespace replayssm
