#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "core/random_stream.h"
#include "spec/acceptance.h"

namespace replayssm {
namespace {

constexpr int kVocab = 5;
constexpr int kDraws = 100'000;
using Probabilities = std::array<double, kVocab>;

// What follows a token: two different chains over five tokens, with zeros in both.
constexpr std::array<Probabilities, kVocab> kTarget = {{{0.5, 0.2, 0.2, 0.1, 0.0},
                                                        {0.1, 0.1, 0.1, 0.1, 0.6},
                                                        {0.0, 0.0, 0.3, 0.7, 0.0},
                                                        {0.2, 0.2, 0.2, 0.2, 0.2},
                                                        {0.9, 0.0, 0.05, 0.05, 0.0}}};
constexpr std::array<Probabilities, kVocab> kDrafter = {{{0.1, 0.6, 0.1, 0.1, 0.1},
                                                         {0.1, 0.1, 0.1, 0.1, 0.6},
                                                         {0.5, 0.5, 0.0, 0.0, 0.0},
                                                         {0.0, 0.0, 0.0, 1.0, 0.0},
                                                         {0.3, 0.3, 0.2, 0.1, 0.1}}};

TokenDistribution distribution(const Probabilities& p, double scale = 1.0) {
  TokenDistribution result;
  for (int token = 0; token < kVocab; ++token) {
    result.entries.push_back({token, scale * p[static_cast<std::size_t>(token)]});
    result.total += scale * p[static_cast<std::size_t>(token)];
  }
  return result;
}

const Probabilities& after(const std::array<Probabilities, kVocab>& chain, TokenId token) {
  return chain[static_cast<std::size_t>(token)];
}

enum class Drafting { drawn, most_likely, always_last };

// A text of `length` tokens after token 0, by windows of `drafts` drafts.
std::vector<TokenId> speculate(std::uint64_t seed, int length, int drafts, Drafting drafting) {
  std::vector<TokenId> text{0};
  std::uint64_t index = 0;
  while (static_cast<int>(text.size()) <= length) {
    std::vector<Draft> window;
    TokenId last = text.back();
    for (int i = 0; i < drafts; ++i) {
      Draft draft;
      const TokenDistribution q = distribution(after(kDrafter, last), 3.0);
      if (drafting == Drafting::drawn) {
        draft.distribution = q;
        draft.token = draw(q, uniform_at(draft_seed(seed), index + static_cast<std::uint64_t>(i)));
      } else if (drafting == Drafting::most_likely) {
        for (const auto& entry : q.entries) {
          if (entry.weight > q.entries[static_cast<std::size_t>(draft.token)].weight) {
            draft.token = entry.token;
          }
        }
      } else {
        draft.token = kVocab - 1;
      }
      last = draft.token;
      window.push_back(std::move(draft));
    }
    for (int i = 0; i <= drafts; ++i) {
      const TokenDistribution p = distribution(after(kTarget, text.back()), 0.5);
      const Draft* draft = i < drafts ? &window[static_cast<std::size_t>(i)] : nullptr;
      const TokenId token = output_token(p, draft == nullptr ? Draft{} : *draft, seed, index++);
      text.push_back(token);
      if (draft == nullptr || token != draft->token) break;
    }
  }
  text.resize(static_cast<std::size_t>(length) + 1);
  return text;
}

// Pearson's statistic of texts of three tokens against the target's chain, and its degrees of
// freedom.
std::pair<double, int> chi_squared(const std::map<std::vector<TokenId>, int>& counts) {
  double sum = 0;
  int cells = 0;
  for (int a = 0; a < kVocab; ++a) {
    for (int b = 0; b < kVocab; ++b) {
      for (int c = 0; c < kVocab; ++c) {
        const double mean = kDraws * after(kTarget, 0)[static_cast<std::size_t>(a)] *
                            after(kTarget, a)[static_cast<std::size_t>(b)] *
                            after(kTarget, b)[static_cast<std::size_t>(c)];
        const auto found = counts.find({0, a, b, c});
        const double observed = found == counts.end() ? 0 : found->second;
        if (mean == 0) {
          EXPECT_EQ(observed, 0) << a << b << c << " cannot follow";
          continue;
        }
        sum += (observed - mean) * (observed - mean) / mean;
        ++cells;
      }
    }
  }
  return {sum, cells - 1};
}

TEST(Acceptance, OutputIsDistributedAsTheTargetsWhateverTheDrafts) {
  for (const Drafting drafting : {Drafting::drawn, Drafting::most_likely, Drafting::always_last}) {
    for (int drafts = 1; drafts <= 4; ++drafts) {
      std::map<std::vector<TokenId>, int> counts;
      for (int i = 0; i < kDraws; ++i) {
        ++counts[speculate(static_cast<std::uint64_t>(i), 3, drafts, drafting)];
      }
      const auto [statistic, freedom] = chi_squared(counts);
      // Above mean + 4.5 standard deviations once in about 10^5 runs of a right one; the draws are
      // fixed.
      EXPECT_LT(statistic, freedom + 4.5 * std::sqrt(2.0 * freedom))
          << "drafts " << drafts << ", drafting " << static_cast<int>(drafting);
    }
  }
}

TEST(Acceptance, APointMassGivesTheTokensOfPlainDecoding) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const auto plain = speculate(seed, 12, 0, Drafting::most_likely);
    EXPECT_EQ(speculate(seed, 12, 3, Drafting::most_likely), plain);
    EXPECT_EQ(speculate(seed, 12, 4, Drafting::always_last), plain);
  }
}

TEST(Acceptance, AGreedyTargetBelievesItsOwnTokenOnly) {
  const TokenDistribution greedy{{{3, 1.0}}, 1.0};
  const TokenDistribution q = distribution(after(kDrafter, 0));
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    for (TokenId token = 0; token < kVocab; ++token) {
      EXPECT_EQ(output_token(greedy, {token, q}, seed, 0), 3);
      EXPECT_EQ(output_token(greedy, {token, {}}, seed, 0), 3);
    }
  }
}

// Where drafter and target agree nothing is left to draw from, whatever rounding says.
TEST(Acceptance, EqualDistributionsAcceptEverything) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const TokenDistribution p = distribution(after(kTarget, 0), 0.7);
    const TokenDistribution q = distribution(after(kTarget, 0), 1.3);
    const Draft draft{draw(q, uniform_at(draft_seed(seed), 7)), q};
    EXPECT_EQ(output_token(p, draft, seed, 7), draft.token);
  }
}

// The share of accepted drafts is 1 - |p - q| / 2.
TEST(Acceptance, AsManyDraftsAreAcceptedAsTheDistributionsShare) {
  const TokenDistribution p = distribution(after(kTarget, 0));
  const TokenDistribution q = distribution(after(kDrafter, 0));
  double shared = 0;
  for (std::size_t i = 0; i < kVocab; ++i) {
    shared += std::min(after(kTarget, 0)[i], after(kDrafter, 0)[i]);
  }
  int accepted = 0;
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    const Draft draft{draw(q, uniform_at(draft_seed(seed), 0)), q};
    accepted += output_token(p, draft, seed, 0) == draft.token ? 1 : 0;
  }
  const double deviation = std::sqrt(kDraws * shared * (1 - shared));
  EXPECT_NEAR(accepted, kDraws * shared, 4.5 * deviation);
}

}  // namespace
}  // namespace replayssm
