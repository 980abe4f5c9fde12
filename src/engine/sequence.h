// One request's tokens and where they stand.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/sequence_memory.h"
#include "core/strong_id.h"
#include "engine/sampler.h"
#include "replay/traffic.h"
#include "spec/drafter.h"

namespace replayssm {

// What a sequence has cost so far. State traffic is counted over all linear layers.
struct SequenceCounters {
  std::int64_t steps = 0;
  std::int64_t tokens_evaluated = 0;
  std::int64_t folds = 0;  // blocks folded into the checkpoint, counted once for all layers
  std::int64_t state_bytes_read = 0;
  std::int64_t state_bytes_written = 0;
  std::int64_t windows = 0;          // steps that verified drafts
  std::int64_t drafts = 0;           // verified
  std::int64_t drafts_accepted = 0;  // of these, became output
};

inline SequenceCounters& operator+=(SequenceCounters& to, const SequenceCounters& more) {
  to.steps += more.steps;
  to.tokens_evaluated += more.tokens_evaluated;
  to.folds += more.folds;
  to.state_bytes_read += more.state_bytes_read;
  to.state_bytes_written += more.state_bytes_written;
  to.windows += more.windows;
  to.drafts += more.drafts;
  to.drafts_accepted += more.drafts_accepted;
  return to;
}

// What was added between two readings of a sequence's counters.
inline SequenceCounters operator-(const SequenceCounters& now, const SequenceCounters& before) {
  return {now.steps - before.steps,
          now.tokens_evaluated - before.tokens_evaluated,
          now.folds - before.folds,
          now.state_bytes_read - before.state_bytes_read,
          now.state_bytes_written - before.state_bytes_written,
          now.windows - before.windows,
          now.drafts - before.drafts,
          now.drafts_accepted - before.drafts_accepted};
}

// tokens[0 .. t) are evaluated, t = memory.cursor().committed; the rest is decided and waits. In
// decode exactly one waits: the anchor, at position t; none does while the step that chooses it is
// launched and not taken. Move-only.
struct Sequence {
  std::vector<TokenId> tokens;
  // The first so many tokens came with the request; they are prefilled, later ones decoded.
  int prompt_tokens = 0;
  SamplingState sampling;
  Residence memory;
  DrafterMemory drafter;
  SequenceCounters counters;

  int evaluated() const { return memory.cursor().committed.tokens; }
  int waiting() const { return static_cast<int>(tokens.size()) - evaluated(); }
  Phase phase() const { return evaluated() < prompt_tokens ? Phase::prefill : Phase::decode; }
};

}  // namespace replayssm
