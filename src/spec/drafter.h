// Who guesses the next tokens. Guesses change how fast a text comes, never which one.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "cache/sequence_layout.h"
#include "core/result.h"
#include "core/strong_id.h"
#include "engine/sampling_params.h"
#include "spec/draft.h"

namespace replayssm {

// What a sequence keeps for a drafter besides the drafter's part of its pages. Belongs to the
// sequence's tokens: it stays valid when its memory moves.
struct DrafterMemory {
  int position = -1;            // of the newest token whose features are here
  std::vector<float> features;  // [Drafter::features()], of that token
};

// One sequence, as drafters see it. What they keep for it follows from the committed length alone:
// rows of its pages at or past it are anybody's, and are written again by whoever needs them.
struct DraftedSequence {
  // Those decided. The last one, the anchor, is not evaluated: it stands at position committed().
  std::span<const TokenId> tokens;
  std::span<const PageId> pages;  // in order, of all positions that a call may write
  DrafterMemory* memory = nullptr;

  int committed() const { return static_cast<int>(tokens.size()) - 1; }
};

// Drafts that are wanted.
struct DraftRequest {
  DraftedSequence sequence;
  int most = 0;                              // drafts; pages reach to committed() + most
  const SamplingParams* sampling = nullptr;  // of the request
  std::uint64_t outputs = 0;                 // output tokens so far
  std::vector<Draft> drafts;                 // the result: up to `most`, for the positions after
                                             // the anchor's
  int most_accepted = 0;                     // of them; set by Engine::propose()
};

// Tokens that a step has committed: those at positions first .. first + count - 1.
struct CommittedTokens {
  DraftedSequence sequence;  // tokens: all that are decided, these among them
  int first = 0;
  int count = 0;
  const float* features = nullptr;  // [count, Drafter::features()]
};

// Not thread-safe: the engine thread only.
class Drafter {
 public:
  virtual ~Drafter() = default;

  // The most drafts that it makes at once.
  virtual int most_drafts() const = 0;
  // Whether its drafts carry a confidence.
  virtual bool has_confidence() const { return false; }
  // Hidden states of the target that it wants of every token, in this order: see HiddenTap.
  virtual std::span<const int> taps() const { return {}; }

  // Told of every step's tokens, in order, once they are committed.
  virtual Status observe(std::span<const CommittedTokens> rows) = 0;
  // Fills the drafts of all rows.
  virtual Status propose(std::span<DraftRequest> rows) = 0;
  // Forgets what it has learnt from the tokens of others.
  virtual void clear() {}
};

}  // namespace replayssm
