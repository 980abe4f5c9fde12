// Drafters for tests: they know the texts that plain decoding gives, and make of them what a test
// wants.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/random_stream.h"
#include "small_engine.h"
#include "spec/drafter.h"

namespace replayssm {

class ScriptedDrafter final : public Drafter {
 public:
  // The draft for a position whose right token is `truth`; `place` in the window, from 0.
  using Script = std::function<TokenId(TokenId truth, int position, int place)>;

  // `texts`: prompts with their outputs, by plain decoding.
  ScriptedDrafter(std::vector<std::vector<TokenId>> texts, int most, Script script)
      : texts_(std::move(texts)), most_(most), script_(std::move(script)) {}

  int most_drafts() const override { return most_; }
  Status observe(std::span<const CommittedTokens> rows) override {
    for (const CommittedTokens& row : rows) {
      EXPECT_GE(row.count, 1);
      EXPECT_LE(row.first + row.count, static_cast<int>(row.sequence.tokens.size()));
    }
    return {};
  }
  Status propose(std::span<DraftRequest> rows) override {
    for (DraftRequest& row : rows) {
      const auto& tokens = row.sequence.tokens;
      const auto known = std::find_if(texts_.begin(), texts_.end(), [&](const auto& text) {
        return text.size() >= tokens.size() &&
               std::equal(tokens.begin(), tokens.end(), text.begin());
      });
      for (int i = 0; i < row.most; ++i) {
        const std::size_t at = tokens.size() + static_cast<std::size_t>(i);
        const TokenId truth = known == texts_.end() || at >= known->size() ? 0 : (*known)[at];
        row.drafts.push_back({script_(truth, static_cast<int>(at), i), {}});
      }
    }
    return {};
  }

 private:
  std::vector<std::vector<TokenId>> texts_;
  int most_;
  Script script_;
};

struct NamedScript {
  const char* name;
  ScriptedDrafter::Script script;
};

inline std::vector<NamedScript> drafter_doubles() {
  const auto wrong = [](TokenId truth) { return truth == 0 ? 1 : truth - 1; };
  return {{"perfect", [](TokenId truth, int, int) { return truth; }},
          {"always wrong", [=](TokenId truth, int, int) { return wrong(truth); }},
          {"random",
           [=](TokenId truth, int position, int place) {
             const auto at = static_cast<std::uint64_t>(position * 31 + place);
             return uniform_at(5, at) < 0.6 ? truth : wrong(truth);
           }},
          {"alternating", [=](TokenId truth, int position, int) {
             return position % 2 == 0 ? truth : wrong(truth);
           }}};
}

}  // namespace replayssm
