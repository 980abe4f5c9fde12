#include "cache/prefix_tree.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <new>
#include <utility>

namespace replayssm {
namespace {

int shared_tokens(std::span<const TokenId> a, std::span<const TokenId> b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<int>(ends.first - a.begin());
}

std::span<const TokenId> from(std::span<const TokenId> tokens, int begin) {
  return tokens.subspan(static_cast<std::size_t>(begin));
}

}  // namespace

struct PrefixTree::Node {
  std::vector<TokenId> edge;  // from the parent; empty at the root only
  Node* parent = nullptr;
  int depth = 0;                                      // tokens from the root to the end of the edge
  EntryId entry;                                      // what ends here
  std::map<TokenId, std::unique_ptr<Node>> children;  // by the first token of their edge
};

PrefixTree::PrefixTree() : root_(std::make_unique<Node>()) {}
PrefixTree::~PrefixTree() = default;

// The node at exactly these tokens, or null.
PrefixTree::Node* PrefixTree::descend(std::span<const TokenId> tokens) const {
  Node* node = root_.get();
  while (node->depth < static_cast<int>(tokens.size())) {
    const auto rest = from(tokens, node->depth);
    const auto child = node->children.find(rest.front());
    if (child == node->children.end()) return nullptr;
    const auto& edge = child->second->edge;
    if (shared_tokens(edge, rest) < static_cast<int>(edge.size())) return nullptr;
    node = child->second.get();
  }
  return node;
}

EntryId PrefixTree::at(std::span<const TokenId> tokens) const {
  const Node* node = descend(tokens);
  return node == nullptr ? EntryId{} : node->entry;
}

// Whatever is made is made before the tree is changed: when memory runs out nothing is stored, and
// all that was is still found.
void PrefixTree::insert(std::span<const TokenId> tokens, EntryId entry) {
  assert(!tokens.empty());
  const auto known = nodes_.emplace(entry, nullptr).first;
  try {
    Node* node = make_node(tokens);
    assert(node->entry == EntryId{});
    node->entry = entry;
    known->second = node;
  } catch (...) {
    nodes_.erase(known);
    throw;
  }
}

// The node at exactly these tokens, made where there is none.
PrefixTree::Node* PrefixTree::make_node(std::span<const TokenId> tokens) {
  Node* node = root_.get();
  while (node->depth < static_cast<int>(tokens.size())) {
    const auto rest = from(tokens, node->depth);
    const auto found = node->children.find(rest.front());
    if (found == node->children.end()) {
      auto leaf = std::make_unique<Node>();
      leaf->edge.assign(rest.begin(), rest.end());
      leaf->parent = node;
      leaf->depth = static_cast<int>(tokens.size());
      return node->children.emplace(rest.front(), std::move(leaf)).first->second.get();
    }
    std::unique_ptr<Node>& child = found->second;
    const int shared = shared_tokens(child->edge, rest);
    if (shared < static_cast<int>(child->edge.size())) {
      // The edge parts here: a node between.
      auto upper = std::make_unique<Node>();
      upper->edge.assign(child->edge.begin(), child->edge.begin() + shared);
      upper->parent = node;
      upper->depth = node->depth + shared;
      std::unique_ptr<Node>& lower = upper->children[child->edge[static_cast<std::size_t>(shared)]];
      child->edge.erase(child->edge.begin(), child->edge.begin() + shared);
      child->parent = upper.get();
      lower = std::move(child);
      child = std::move(upper);
    }
    node = child.get();
  }
  return node;
}

void PrefixTree::erase(EntryId entry) {
  const auto found = nodes_.find(entry);
  assert(found != nodes_.end());
  Node* node = found->second;
  nodes_.erase(found);
  node->entry = EntryId{};
  while (node->parent != nullptr && node->entry == EntryId{} && node->children.size() < 2) {
    Node* parent = node->parent;
    const TokenId first = node->edge.front();
    if (node->children.empty()) {
      parent->children.erase(first);
      node = parent;
      continue;
    }
    merge_with_child(*node);
    break;
  }
}

// A node without an entry and with one child: the child's edge takes in its own. The tree is as
// right without that, so it does not matter when there is no memory for the longer edge.
void PrefixTree::merge_with_child(Node& node) {
  std::vector<TokenId>& edge = node.children.begin()->second->edge;
  try {
    edge.insert(edge.begin(), node.edge.begin(), node.edge.end());
  } catch (const std::bad_alloc&) {
    return;
  }
  std::unique_ptr<Node> child = std::move(node.children.begin()->second);
  child->parent = node.parent;
  node.parent->children.find(child->edge.front())->second = std::move(child);
}

EntryId PrefixTree::next_below(EntryId entry) const {
  const Node* node = nodes_.at(entry);
  do {
    if (node->children.size() != 1) return EntryId{};
    node = node->children.begin()->second.get();
  } while (node->entry == EntryId{});
  return node->entry;
}

std::vector<TokenId> PrefixTree::tokens_of(EntryId entry) const {
  const Node* node = nodes_.at(entry);
  std::vector<TokenId> tokens(static_cast<std::size_t>(node->depth));
  for (; node->parent != nullptr; node = node->parent) {
    std::copy(node->edge.begin(), node->edge.end(), tokens.begin() + node->parent->depth);
  }
  return tokens;
}

// `node` and everything below it, all of which share `common` tokens with the prompt or, where
// they are on its path, fewer.
void PrefixTree::visit(const Node& node, int common,
                       const std::function<int(EntryId entry, int common)>& value,
                       Best& best) const {
  const int shared = std::min(node.depth, common);
  if (node.entry != EntryId{}) {
    best.longest = std::max(best.longest, shared);
    const int found = value(node.entry, shared);
    const auto key = [](int v, int c) { return std::pair(v, c); };
    if (found > 0 && key(found, shared) > key(best.value, best.common)) {
      best.entry = node.entry;
      best.value = found;
      best.common = shared;
    }
  }
  for (const auto& [first, child] : node.children) visit(*child, common, value, best);
}

PrefixTree::Best PrefixTree::best(
    std::span<const TokenId> prompt,
    const std::function<int(EntryId entry, int common)>& value) const {
  // Down the prompt, as far as the tree knows it.
  std::vector<const Node*> path = {root_.get()};
  int common = 0;
  while (common < static_cast<int>(prompt.size())) {
    const Node& node = *path.back();
    const auto rest = from(prompt, node.depth);
    const auto child = rest.empty() ? node.children.end() : node.children.find(rest.front());
    if (child == node.children.end()) break;
    const int shared = shared_tokens(child->second->edge, rest);
    common = node.depth + shared;
    path.push_back(child->second.get());
    if (shared < static_cast<int>(child->second->edge.size())) break;
  }
  // Back up: what hangs off the path at a node shares at most its depth.
  Best best;
  visit(*path.back(), common, value, best);
  for (auto at = std::next(path.rbegin()); at != path.rend(); ++at) {
    const Node& node = **at;
    if (best.value >= node.depth && best.longest > 0) break;
    if (node.entry != EntryId{}) {
      best.longest = std::max(best.longest, node.depth);
      const int found = value(node.entry, node.depth);
      if (found > best.value) best = {node.entry, found, node.depth, best.longest};
    }
    for (const auto& [first, child] : node.children) {
      if (child.get() != *std::prev(at)) visit(*child, node.depth, value, best);
    }
  }
  return best;
}

}  // namespace replayssm
