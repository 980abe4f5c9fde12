// Turns a drafter's logits into drafts.
#pragma once

#include <span>

#include "model/candidate_selector.h"
#include "spec/drafter.h"

namespace replayssm {

// Drafts are the most likely tokens; with `sampled`, and where the request draws its tokens, they
// are drawn and carry the distribution they were drawn from.
class DraftChooser {
 public:
  explicit DraftChooser(bool sampled) : sampled_(sampled) {}

  // Appends the request's next draft. False, and nothing appended, where the logits are of no use.
  // logits [vocab_size]: drawn from as the request's sampling says, penalties left aside, from the
  // 64 most likely tokens at most.
  bool choose(DraftRequest& request, std::span<const float> logits);
  // The same among candidates: the first of the best, or drawn from their softmax at the request's
  // temperature.
  bool choose(DraftRequest& request, std::span<const DraftCandidate> candidates);
  // The same where the model has picked the best token; negative: none. Only without draws().
  static bool choose(DraftRequest& request, TokenId best);

  // Whether the request's drafts are drawn, not the most likely tokens.
  bool draws(const DraftRequest& request) const { return sampled_ && !request.sampling->greedy(); }

 private:
  void append_drawn(DraftRequest& request, const TokenDistribution& distribution);

  bool sampled_;
  Sampler sampler_;
  TokenDistribution among_;  // of candidates
};

}  // namespace replayssm
