// A loaded model with the memory of its running sequences: everything that a scheduler schedules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/poison.h"
#include "cache/sequence_memory.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "engine/device.h"
#include "engine/engine_options.h"
#include "engine/output_rules.h"
#include "engine/runner.h"
#include "engine/sampler.h"
#include "engine/sequence.h"
#include "model/block_draft_weights.h"
#include "model/model.h"
#include "ops/linear_ops.h"
#include "replay/memory_plan.h"
#include "spec/drafter.h"
#include "spec/prefix_scheduler.h"

namespace replayssm {

struct SampledToken {
  TokenId token = 0;
  std::optional<TokenLogprobs> logprobs;  // if the row's rules ask for them
  // By the row's rules as they were then:
  bool ends = false;  // ends the output, and is no part of it
  bool last = false;  // is part of the output, behind which nothing may come
};

// What a step gave one sequence.
struct StepResult {
  Sequence* sequence = nullptr;
  std::vector<SampledToken> tokens;  // in order, appended to sequence->tokens
  // Of the tokens that follow the row's, as far as they are prompt, if asked for.
  std::vector<TokenLogprobs> prompt_logprobs;
  std::optional<Error> error;   // the sequence has ended and must be dropped
  bool finite = true;           // false: logits that are not finite are the error
  Phase phase = Phase::decode;  // of the sequence's row
  int evaluated = 0;            // tokens of the row
  SequenceCounters cost;        // what the row has added to the sequence's counters

  // Whether nothing can follow these tokens.
  bool ended() const {
    return error || (!tokens.empty() && (tokens.back().ends || tokens.back().last));
  }
};

// Owns model, pools and threads. Sequences are the caller's, and are destroyed before the engine.
// All calls come from one thread.
class Engine {
 public:
  // Loads the model, plans the memory and allocates it, in that order. Errors name option, value
  // and what is accepted; a plan that does not fit is refused with its numbers. `maker` makes what
  // make_device() does, for tests.
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& asked,
                                                const DeviceMaker& maker = make_device);

  const ModelConfig& config() const { return model_->config(); }
  const ModelOptions& model_options() const { return model_->options(); }
  const EngineOptions& options() const { return options_; }
  const MemoryPlan& plan() const { return plan_; }
  // Bytes of the device's memory that are in use now and were not before the engine was made; on
  // the cpu, where others use the memory too, 0.
  std::int64_t allocated_bytes() const;
  SequenceMemory& memory() { return *memory_; }
  Runner& runner() { return *runner_; }
  LinearOps& ops() const { return device_->ops(); }
  int threads() const { return pool_->threads(); }
  int context_length() const { return context_length_; }

  // A sequence whose tokens wait to be prefilled; with `resumed`, those that it has not evaluated,
  // of which there is at least one. Refused, with nothing changed: no tokens, ids outside the
  // vocabulary, more than the context, or no room (with the numbers).
  Result<Sequence> admit(std::vector<TokenId> tokens, const SamplingParams& sampling,
                         Residence resumed = {});

  // Refused as by admit(), without admitting anything.
  Status check_prompt(std::span<const TokenId> tokens) const;

  // A sequence's next prompt, all of it (the next turn of a chat): it must begin with the tokens
  // that are evaluated, and have more; the rest waits to be prefilled. Refused, with nothing
  // changed, otherwise and as by check_prompt().
  Status extend(Sequence& sequence, std::vector<TokenId> tokens, const SamplingParams& sampling);

  // A second sequence with the same past that samples with another seed. Copies no state.
  Result<Sequence> fork(const Sequence& parent, std::uint64_t seed);

  // Out of the pools into bytes, and back; see engine/sequence_archive.h. pause() changes nothing:
  // the caller drops the sequence to free its memory.
  Result<std::vector<std::byte>> pause(const Sequence& sequence);
  Result<Sequence> resume(std::span<const std::byte> archive);

  // Evaluates the rows, samples for each row that asked for logits and has no further tokens
  // waiting, and commits. A row with drafts, which asks for logits of the anchor and every draft,
  // samples until a token is not the draft for its place or ends the output; as many of its tokens
  // are committed. Of other rows all are. A sequence whose logits are not finite gets an error, its
  // neighbours do not. An error of the call itself means that no row's sequence may be used again.
  Result<std::vector<StepResult>> step(std::span<const StepRow> rows);

  // step() in two parts, between which the host is free. launch() has the rows evaluated, and
  // take() hands out what step() would have. Where may_precede() says so, the next step can be
  // launched before this one is taken: of rows of this step's sequences, one token each, which is
  // the one that this step chooses. When take() finds that one of them has ended, its row in the
  // next step commits nothing and is left out of that step's results. At most two are launched.
  Status launch(std::span<const StepRow> rows);
  Result<std::vector<StepResult>> take();
  // The rows of the newest launched step that is not taken, without a sequence where that has
  // ended; empty: there is none.
  std::span<const StepRow> launched() const;
  // Whether the step after `row`'s can be launched before this one's token is known: rows of one
  // token each, and no drafter. Where a choice asks for the token before (penalties, constraints),
  // the step ahead is evaluated, and chooses once that is known.
  bool may_precede(const StepRow& row) const;
  // Whether steps run beside the host, so that it is worth while to launch one ahead.
  bool runs_beside_host() const { return model_->chooses_tokens(); }
  // No launched step will be taken, and no sequence of one is used again.
  void forget_launched();

  // Takes the place of the drafter that the options ask for. No sequence is running.
  void use_drafter(std::unique_ptr<Drafter> drafter);
  // Hands the drafter over, for another one to make use of it; until use_drafter() there is none.
  std::unique_ptr<Drafter> take_drafter();
  // Null: no speculation.
  Drafter* drafter() { return drafter_.get(); }
  // The model's own; null unless the options ask for it.
  DraftHead* draft_head() { return model_->draft_head(); }
  // The most drafts of a step's row.
  int most_drafts() const;
  // Drafts for sequences whose anchor waits; each was prepared for a window of 1 + most tokens.
  // Where the drafter says how sure it is, as many of them as the options' threshold and step rates
  // leave; with windows that are filled up, all.
  Status propose(std::span<DraftRequest> requests);
  // By which windows are chosen; null: by the drafter alone.
  const StepRates* step_rates() const { return step_rates_ ? &*step_rates_ : nullptr; }

  // Pages, and a home slot if one is needed, for a row that is to be stepped. Refused when there is
  // no room; the sequence can wait.
  Status prepare(const StepRow& row);

  // A row for the sequence's next step: a chunk of at most `most_tokens` of its prompt (with logits
  // if it ends the prompt), or its anchor.
  static StepRow next_row(Sequence& sequence, int most_tokens);

 private:
  Engine() = default;
  // `block`: the block drafter that the options ask for, or null, and its weights.
  std::unique_ptr<Drafter> make_drafter(const BlockDraftConfig* block, BlockDraftWeights weights);
  Status set_step_rates();
  // A step between launch() and take().
  struct Flight {
    std::vector<StepRow> rows;  // sequence null: it has ended
    std::vector<int> first;     // positions of the rows' first tokens
    std::vector<int> outputs;   // places of the rows at which an output token is chosen
    bool chosen = false;        // without the host reading logits; otherwise from `logits`
    bool choice_waits = false;  // for the tokens of the step before
    bool committed = false;
    std::vector<std::optional<Error>> failed;  // why a row's choice could not be said
    std::span<const float> logits;
    std::vector<SequenceCounters> cost;
  };
  bool chooses_at_launch(const StepRow& row) const;
  bool asks_for_token_before(const StepRow& row) const;
  std::span<const TokenId> rated_prompt(const StepRow& row, int first_position) const;
  Status choose(Flight& flight, int unknown);
  Status commit(Flight& flight, std::span<const int> accepted);
  Status settle_next(std::span<const StepResult> results);
  // `at`: the row's place in the flight.
  Status read_chosen(const StepRow& row, const Flight& flight, std::size_t at,
                     std::span<const ChosenToken> chosen, StepResult& result);
  Status read_logits(const StepRow& row, const Flight& flight, std::size_t at, int first_row,
                     StepResult& result);
  Result<TokenId> sample(const StepRow& row, std::span<const float> logits, const Draft* draft,
                         StepResult& result);
  Status put_out(const StepRow& row, TokenId token, StepResult& result);
  Status observe(std::span<const StepRow> rows, std::span<const int> first,
                 std::span<const int> accepted);

  EngineOptions options_;
  int context_length_ = 0;
  std::uint64_t fingerprint_ = 0;
  MemoryPlan plan_;
  // Destroyed from the last to the first: each uses the ones above it.
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Device> device_;
  std::int64_t free_before_ = 0;
  std::unique_ptr<Model> model_;
  std::unique_ptr<SequenceMemory> memory_;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<LinearOps> host_ops_;  // of a drafter on the host, beside a device's
  std::unique_ptr<Drafter> drafter_;
  std::optional<StepRates> step_rates_;
  Sampler sampler_;
  std::deque<Flight> flights_;                // launched, not taken
  std::vector<std::vector<SeenToken>> seen_;  // of the choices of the step that is launched
};

}  // namespace replayssm
