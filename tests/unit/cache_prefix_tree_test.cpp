// The radix tree against a list that is searched from end to end.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <span>
#include <vector>

#include "cache/prefix_tree.h"

namespace replayssm {
namespace {

using Tokens = std::vector<TokenId>;

// Every entry with its tokens; nothing shared, nothing clever.
class NaivePrefixTree {
 public:
  void insert(const Tokens& tokens, EntryId entry) { entries_[entry] = tokens; }
  void erase(EntryId entry) { entries_.erase(entry); }
  EntryId at(const Tokens& tokens) const {
    for (const auto& [id, stored] : entries_) {
      if (stored == tokens) return id;
    }
    return EntryId{};
  }

  // The shortest of those that continue `entry`, if it is a prefix of all of them.
  EntryId next_below(EntryId entry) const {
    const auto continues = [](const Tokens& longer, const Tokens& tokens) {
      return longer.size() > tokens.size() &&
             std::equal(tokens.begin(), tokens.end(), longer.begin());
    };
    const Tokens& tokens = entries_.at(entry);
    std::vector<EntryId> below;
    for (const auto& [id, stored] : entries_) {
      if (continues(stored, tokens)) below.push_back(id);
    }
    if (below.empty()) return EntryId{};
    const EntryId shortest = *std::min_element(
        below.begin(), below.end(),
        [&](EntryId a, EntryId b) { return entries_.at(a).size() < entries_.at(b).size(); });
    const bool all = std::all_of(below.begin(), below.end(), [&](EntryId id) {
      return id == shortest || continues(entries_.at(id), entries_.at(shortest));
    });
    return all ? shortest : EntryId{};
  }

  template <class Value>
  PrefixTree::Best best(const Tokens& prompt, Value value) const {
    PrefixTree::Best best;
    std::size_t length = 0;
    for (const auto& [id, stored] : entries_) {
      const auto ends = std::mismatch(stored.begin(), stored.end(), prompt.begin(), prompt.end());
      const int common = static_cast<int>(ends.first - stored.begin());
      best.longest = std::max(best.longest, common);
      const int found = value(id, common);
      if (found == 0) continue;
      const bool wins = found != best.value     ? found > best.value
                        : common != best.common ? common > best.common
                                                : stored.size() < length;
      if (best.entry == EntryId{} || wins) {
        best.entry = id;
        best.value = found;
        best.common = common;
        length = stored.size();
      }
    }
    return best;
  }

  const std::map<EntryId, Tokens>& entries() const { return entries_; }

 private:
  std::map<EntryId, Tokens> entries_;
};

TEST(PrefixTree, AgreesWithASearchFromEndToEndOverRandomOperations) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
    // Few different tokens and much copying, so that paths meet and part all the time.
    const auto some_tokens = [&](const NaivePrefixTree& known) {
      Tokens tokens;
      if (!known.entries().empty() && below(4) > 0) {
        auto at = known.entries().begin();
        std::advance(at, below(static_cast<unsigned>(known.entries().size())));
        tokens = at->second;
        tokens.resize(static_cast<std::size_t>(below(static_cast<unsigned>(tokens.size()) + 1)));
      }
      const int more = below(6);
      for (int i = 0; i < more; ++i) tokens.push_back(below(3));
      if (tokens.empty()) tokens.push_back(below(3));
      return tokens;
    };
    PrefixTree tree;
    NaivePrefixTree naive;
    std::map<EntryId, int> checkpoints;
    for (int step = 0; step < 120; ++step) {
      const Tokens tokens = some_tokens(naive);
      ASSERT_EQ(tree.at(tokens), naive.at(tokens));
      if (below(3) > 0 && naive.at(tokens) == EntryId{}) {
        const EntryId id{step};
        tree.insert(tokens, id);
        naive.insert(tokens, id);
        checkpoints[id] = below(static_cast<unsigned>(tokens.size()) + 1);
      } else if (!naive.entries().empty() && below(2) == 0) {
        auto at = naive.entries().begin();
        std::advance(at, below(static_cast<unsigned>(naive.entries().size())));
        const EntryId id = at->first;
        ASSERT_EQ(tree.tokens_of(id), at->second);
        ASSERT_EQ(tree.next_below(id), naive.next_below(id)) << "seed " << seed;
        tree.erase(id);
        naive.erase(id);
      }
      // As a cache entry does: all of it, or its checkpoint if that far is shared.
      const auto value = [&](EntryId id, int common) {
        const int depth = static_cast<int>(naive.entries().at(id).size());
        return common == depth ? depth : common >= checkpoints.at(id) ? checkpoints.at(id) : 0;
      };
      const Tokens prompt = some_tokens(naive);
      const auto found = tree.best(prompt, value);
      const auto expected = naive.best(prompt, value);
      ASSERT_EQ(found.value, expected.value) << "seed " << seed << " step " << step;
      ASSERT_EQ(found.longest, expected.longest) << "seed " << seed << " step " << step;
      if (found.value > 0) {
        ASSERT_EQ(value(found.entry, found.common), found.value);
      }
      ASSERT_EQ(tree.entries(), static_cast<int>(naive.entries().size()));
    }
  }
}

TEST(PrefixTree, ForgetsTheTokensOfWhatWasErased) {
  PrefixTree tree;
  tree.insert(Tokens{1, 2, 3, 4}, EntryId{0});
  tree.insert(Tokens{1, 2, 5}, EntryId{1});
  tree.erase(EntryId{0});
  const auto share = [](EntryId, int common) { return common; };
  EXPECT_EQ(tree.best(Tokens{1, 2, 3, 4}, share).longest, 2);
  tree.erase(EntryId{1});
  EXPECT_EQ(tree.best(Tokens{1, 2, 3, 4}, share).longest, 0);
  EXPECT_EQ(tree.entries(), 0);
}

}  // namespace
}  // namespace replayssm
