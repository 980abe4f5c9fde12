// One step of the model over several sequences.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/result.h"
#include "engine/sampler.h"
#include "engine/sequence.h"
#include "engine/step_limits.h"
#include "model/model.h"

namespace replayssm {

class OutputRules;

// What one sequence does in a step: evaluate `tokens`, the first of its waiting ones and then the
// drafts. A row with drafts evaluates all that waits.
struct StepRow {
  Sequence* sequence = nullptr;
  int tokens = 0;
  Phase phase = Phase::decode;
  int logits = 0;  // wanted for the last so many of these tokens
  // What the request asks of its tokens beyond the sampling parameters; may be null. Told of the
  // tokens that the step samples.
  OutputRules* rules = nullptr;
  std::span<const Draft> drafts = {};
  int most_accepted = std::numeric_limits<int>::max();  // of the drafts
};

// Builds the batch when it is launched, from the sequences as they are then. A step is evaluate()
// or launch(), then commit(). Owns the logits buffer. One thread.
class Runner {
 public:
  // All three outlive the runner.
  Runner(Model& model, LinearOps& ops, SequenceMemory& memory, const StepLimits& limits);

  // Evaluates the rows; each must have been prepared (SequenceMemory::prepare) for this step.
  // Returns the logits wanted, [sum of rows' logits, logits_stride()], in row order, valid until
  // the next call. Refused, with nothing changed, when a row or the step breaks a limit. After any
  // other error the rows' sequences must not be used again.
  Result<std::span<const float>> evaluate(std::span<const StepRow> rows);

  // evaluate() in parts, which choose a token for every row of logits: on the device where the
  // model does that, otherwise in choose(), which follows launch(). One step more may be launched
  // before the oldest is taken: of rows whose sequences' newest token, one each, is what that step
  // chooses, see Sequence::waiting(). Errors as of evaluate().
  //   choices [sum of rows' logits]
  Status launch(std::span<const StepRow> rows);
  Status choose(std::span<const TokenChoice> choices);
  // What the oldest launched step chose, one for every row of logits, valid until the choice
  // after the next.
  Result<std::span<const ChosenToken>> take();
  // Those that are not taken will not be.
  void forget_launched();

  // From now on evaluate() keeps these hidden states of every token; see HiddenTaps.
  void keep_hidden(std::span<const int> taps);
  // Of the tokens of one row that evaluate() was given, [tokens, taps, hidden_size]. Valid until
  // the next evaluate().
  std::span<const float> hidden_of(int row) const;

  // Moves every cursor of the rows that evaluate() or launch() was given last. `accepted` holds one
  // number a row, chunks with all their tokens; empty: all tokens of every row.
  Status commit(std::span<const int> accepted = {});

  // Elements from one row of logits to the next; the first vocab_size of a row are meant.
  std::size_t logits_stride() const { return logits_stride_; }
  std::span<const float> logits_row(std::span<const float> logits, int row) const;
  const StepLimits& limits() const { return limits_; }
  std::int64_t hidden_bytes() const { return static_cast<std::int64_t>(hidden_.bytes()); }
  std::int64_t logits_bytes() const { return static_cast<std::int64_t>(logits_.bytes()); }

 private:
  Status check(std::span<const StepRow> rows) const;
  struct Begun {
    Batch batch;
    std::size_t logit_rows = 0;
  };
  Result<Begun> begin(std::span<const StepRow> rows);
  HiddenTaps hidden_taps(std::size_t tokens);
  void count(const StepRow& row);
  // The row of logits for which the step launched before chooses this sequence's token.
  int chosen_in_row(const Sequence& sequence) const;

  Model& model_;
  LinearOps& ops_;
  SequenceMemory& memory_;
  StepLimits limits_;
  std::size_t logits_stride_;
  AlignedBuffer<float> logits_;  // [logit_rows, vocab_rows]
  struct Launched {
    std::vector<const Sequence*> of_row;  // [logit rows] whose token is chosen
    std::vector<ChosenToken> chosen;      // [logit rows] where the model does not choose
  };
  std::deque<Launched> launched_;    // not taken
  std::vector<ChosenToken> chosen_;  // what take() hands out
  Sampler sampler_;
  std::vector<int> taps_;
  AlignedBuffer<float> hidden_;   // [tokens, taps, hidden_size]
  std::vector<StepRow> rows_;     // of the step in progress
  std::vector<RowTokens> spans_;  // of the newest step
};

}  // namespace replayssm
