// A step on its way: launched, its tokens taken, and what they mean for the step that is launched
// behind it.
#include <algorithm>
#include <utility>

#include "engine/engine.h"
#include "spec/acceptance.h"

namespace replayssm {

Result<std::vector<StepResult>> Engine::step(std::span<const StepRow> rows) {
  REPLAYSSM_TRY(launch(rows));
  return take();
}

std::span<const StepRow> Engine::launched() const {
  return flights_.empty() ? std::span<const StepRow>() : flights_.back().rows;
}

bool Engine::may_precede(const StepRow& row) const {
  return drafter_ == nullptr && row.phase == Phase::decode && row.tokens == 1 && row.logits == 1 &&
         chooses_at_launch(row);
}

bool Engine::asks_for_token_before(const StepRow& row) const {
  return row.sequence->sampling.params().penalises() ||
         (row.rules != nullptr && !row.rules->foreseeable());
}

// Whether the tokens of the row's places can be chosen before the first of them is known.
bool Engine::chooses_at_launch(const StepRow& row) const {
  const OutputRules* rules = row.rules;
  if (rules != nullptr && model_->chooses_tokens() &&
      std::max(rules->top_logprobs().value_or(0), rules->prompt_logprobs().value_or(0)) >
          kMostAlternatives) {
    return false;
  }
  if (row.drafts.empty()) return true;
  const SamplingState& sampling = row.sequence->sampling;
  return model_->chooses_tokens() && !sampling.params().penalises() &&
         (rules == nullptr || rules->unmasked(static_cast<int>(sampling.outputs()))) &&
         std::all_of(row.drafts.begin(), row.drafts.end(),
                     [](const Draft& draft) { return draft.distribution.entries.empty(); });
}

// Tokens of the prompt whose log-probabilities the row's logits are for, those of the row's first
// tokens with logits first.
std::span<const TokenId> Engine::rated_prompt(const StepRow& row, int first_position) const {
  if (row.rules == nullptr || !row.rules->prompt_logprobs() || row.phase != Phase::prefill)
    return {};
  const Sequence& sequence = *row.sequence;
  const int begin = first_position + row.tokens - row.logits + 1;
  const int count = std::min(sequence.prompt_tokens - begin, row.logits);
  if (count <= 0) return {};
  return std::span(sequence.tokens)
      .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
}

// Says how the tokens of the newest launched step are chosen, one for every row of logits; where
// that is no output token, or nobody wants it, the largest logit is asked for. `unknown`: output
// tokens of every row's sequence that come before and are not known.
Status Engine::choose(Flight& flight, int unknown) {
  TokenChoice nothing;
  nothing.temperature = 0;
  std::vector<TokenChoice> choices;
  seen_.resize(flight.rows.size());
  flight.failed.resize(flight.rows.size());
  for (std::size_t i = 0; i < flight.rows.size(); ++i) {
    const StepRow& row = flight.rows[i];
    const std::size_t first = choices.size();
    choices.resize(first + static_cast<std::size_t>(row.logits), nothing);
    if (row.sequence == nullptr) continue;
    for (std::size_t at = first; const TokenId token : rated_prompt(row, flight.first[i])) {
      choices[at].top_logprobs = row.rules->prompt_logprobs();
      choices[at++].logprobs_of = token;
    }
    const std::size_t anchor = choices.size() - 1 - row.drafts.size();
    const SamplingState& sampling = row.sequence->sampling;
    for (int n = 0; n < flight.outputs[i]; ++n) {
      const std::uint64_t index = sampling.outputs() + static_cast<std::uint64_t>(unknown + n);
      TokenChoice choice = sampling.choice(index, seen_[i]);
      if (row.rules != nullptr) {
        const auto allowed = row.rules->mask(static_cast<int>(index), config().vocab_size);
        if (!allowed) {
          flight.failed[i] = allowed.error();
          break;
        }
        choice.mask = *allowed;
        choice.bias = row.rules->logit_bias();
        choice.top_logprobs = row.rules->top_logprobs();
      }
      choices[anchor + static_cast<std::size_t>(n)] = choice;
    }
  }
  return runner_->choose(choices);
}

Status Engine::launch(std::span<const StepRow> rows) {
  if (flights_.size() == 2) return Error{"launch: two steps are launched and not taken"};
  Flight flight;
  flight.rows.assign(rows.begin(), rows.end());
  flight.chosen = std::all_of(rows.begin(), rows.end(),
                              [&](const StepRow& row) { return chooses_at_launch(row); });
  bool drafted = false;
  std::vector<int> all;
  for (const StepRow& row : rows) {
    const int drafts = static_cast<int>(row.drafts.size());
    const bool ends_past = row.logits > 0 && row.sequence->waiting() <= row.tokens - drafts;
    flight.first.push_back(row.sequence->evaluated());
    flight.outputs.push_back(ends_past ? 1 + std::min(drafts, row.most_accepted) : 0);
    drafted = drafted || drafts > 0;
    all.push_back(row.tokens);
  }
  if (flight.chosen) {
    const bool ahead = !flights_.empty();
    flight.choice_waits = ahead && std::any_of(rows.begin(), rows.end(), [&](const StepRow& row) {
                            return asks_for_token_before(row);
                          });
    REPLAYSSM_TRY(runner_->launch(rows));
    Status said = flight.choice_waits ? Status{} : choose(flight, ahead ? 1 : 0);
    if (!said) {
      forget_launched();
      return said;
    }
  } else {
    const auto logits = runner_->evaluate(rows);
    if (!logits) return logits.error();
    flight.logits = *logits;
  }
  // With drafts, or behind a step that is not taken, it is known later what is committed.
  if (flight.chosen && !drafted && flights_.empty()) {
    if (Status committed = commit(flight, all); !committed) {
      forget_launched();
      return committed;
    }
  }
  flights_.push_back(std::move(flight));
  return {};
}

Status Engine::commit(Flight& flight, std::span<const int> accepted) {
  for (const StepRow& row : flight.rows) flight.cost.push_back(row.sequence->counters);
  REPLAYSSM_TRY(runner_->commit(accepted));
  for (std::size_t i = 0; i < flight.rows.size(); ++i) {
    flight.cost[i] = flight.rows[i].sequence->counters - flight.cost[i];
  }
  flight.committed = true;
  return {};
}

Result<std::vector<StepResult>> Engine::take() {
  if (flights_.empty()) return Error{"take: no step is launched"};
  Flight flight = std::move(flights_.front());
  flights_.pop_front();
  std::span<const ChosenToken> chosen;
  if (flight.chosen) {
    const auto taken = runner_->take();
    if (!taken) return taken.error();
    chosen = *taken;
  }

  std::vector<StepResult> results;
  std::vector<int> accepted;
  std::size_t logit_row = 0;
  for (std::size_t i = 0; i < flight.rows.size(); ++i) {
    const StepRow& row = flight.rows[i];
    const std::size_t first_row = logit_row;
    logit_row += static_cast<std::size_t>(row.logits);
    accepted.push_back(row.tokens);
    if (row.sequence == nullptr) continue;
    StepResult result;
    result.sequence = row.sequence;
    result.phase = row.phase;
    result.evaluated = row.tokens;
    const SequenceCounters before = row.sequence->counters;
    const Status read = flight.chosen
                            ? read_chosen(row, flight, i, chosen.subspan(first_row), result)
                            : read_logits(row, flight, i, static_cast<int>(first_row), result);
    if (!read) result.error = read.error();
    result.cost = row.sequence->counters - before;
    // Every output token but the newest has been evaluated in this step.
    if (!row.drafts.empty()) accepted.back() = std::max(1, static_cast<int>(result.tokens.size()));
    results.push_back(std::move(result));
  }
  if (!flight.committed) REPLAYSSM_TRY(commit(flight, accepted));
  auto result = results.begin();
  for (std::size_t i = 0; i < flight.rows.size(); ++i) {
    if (flight.rows[i].sequence != nullptr) (result++)->cost += flight.cost[i];
  }
  REPLAYSSM_TRY(observe(flight.rows, flight.first, accepted));
  REPLAYSSM_TRY(settle_next(results));
  return results;
}

// Commits the step that was launched behind the one with these results: nothing of the rows whose
// sequences have ended, which it has no result for. (A state that is written every token cannot be
// taken back: then their tokens count.)
Status Engine::settle_next(std::span<const StepResult> results) {
  if (flights_.empty()) return {};
  Flight& next = flights_.front();
  std::vector<char> ended;
  std::vector<int> accepted;
  for (const StepRow& row : next.rows) {
    const auto result = std::find_if(results.begin(), results.end(), [&](const StepResult& each) {
      return each.sequence == row.sequence;
    });
    ended.push_back(result == results.end() || result->ended());
    const bool takes_back = memory_->layout().recurrence == Recurrence::replay;
    accepted.push_back(ended.back() != 0 && takes_back ? 0 : row.tokens);
  }
  REPLAYSSM_TRY(commit(next, accepted));
  for (std::size_t i = 0; i < ended.size(); ++i) {
    if (ended[i] != 0) next.rows[i].sequence = nullptr;
  }
  const bool wanted = std::find(ended.begin(), ended.end(), 0) != ended.end();
  if (!wanted) {
    forget_launched();
    return {};
  }
  return next.choice_waits ? choose(next, 0) : Status{};
}

void Engine::forget_launched() {
  flights_.clear();
  runner_->forget_launched();
}

// Tells the drafter what was committed.
Status Engine::observe(std::span<const StepRow> rows, std::span<const int> first,
                       std::span<const int> accepted) {
  if (drafter_ == nullptr) return {};
  std::vector<CommittedTokens> committed;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Sequence& sequence = *rows[i].sequence;
    committed.push_back({{sequence.tokens, sequence.memory.pages(), &sequence.drafter},
                         first[i],
                         accepted[i],
                         runner_->hidden_of(static_cast<int>(i)).data()});
  }
  return drafter_->observe(committed);
}

// Log-probabilities of the prompt where they are wanted; then the tokens that the launch chose, up
// to the first that is not the draft for its place.
Status Engine::read_chosen(const StepRow& row, const Flight& flight, std::size_t at,
                           std::span<const ChosenToken> chosen, StepResult& result) {
  for (std::size_t i = 0; i < rated_prompt(row, flight.first[at]).size(); ++i) {
    if (chosen[i].error) {
      result.finite = chosen[i].finite;
      return *chosen[i].error;
    }
    result.prompt_logprobs.push_back(*chosen[i].logprobs);
  }
  const int outputs = flight.outputs[at];
  if (outputs == 0) return {};
  if (flight.failed[at]) return *flight.failed[at];
  const std::size_t drafts = row.drafts.size();
  const std::size_t anchor = static_cast<std::size_t>(row.logits) - 1 - drafts;
  SequenceCounters& counters = row.sequence->counters;
  counters.windows += drafts > 0 ? 1 : 0;
  counters.drafts += outputs - 1;
  for (int i = 0; i < outputs; ++i) {
    const auto place = static_cast<std::size_t>(i);
    const ChosenToken& next = chosen[anchor + place];
    if (next.error) {
      result.finite = next.finite;
      return *next.error;
    }
    REPLAYSSM_TRY(put_out(row, next.token, result));
    result.tokens.back().logprobs = next.logprobs;
    const bool accepted = i + 1 < outputs && next.token == row.drafts[place].token;
    counters.drafts_accepted += accepted ? 1 : 0;
    if (!accepted || result.ended()) break;
  }
  return {};
}

// Log-probabilities of the prompt where they are wanted; then, if the row is the sequence's last
// one that waits, the next tokens.
Status Engine::read_logits(const StepRow& row, const Flight& flight, std::size_t at, int first_row,
                           StepResult& result) {
  const int drafts = static_cast<int>(row.drafts.size());
  for (int at_row = first_row; const TokenId token : rated_prompt(row, flight.first[at])) {
    const auto logits = runner_->logits_row(flight.logits, at_row++);
    if (Status finite = check_finite(logits); !finite) {
      result.finite = false;
      return finite;
    }
    result.prompt_logprobs.push_back(token_logprobs(logits, token, *row.rules->prompt_logprobs()));
  }
  const int outputs = flight.outputs[at];
  if (outputs == 0) return {};
  const int anchor = first_row + row.logits - 1 - drafts;
  SequenceCounters& counters = row.sequence->counters;
  counters.windows += drafts > 0 ? 1 : 0;
  counters.drafts += outputs - 1;
  for (int i = 0; i < outputs; ++i) {
    const Draft* draft = i + 1 < outputs ? &row.drafts[static_cast<std::size_t>(i)] : nullptr;
    const auto token = sample(row, runner_->logits_row(flight.logits, anchor + i), draft, result);
    if (!token) return token.error();
    const bool accepted = draft != nullptr && *token == draft->token;
    counters.drafts_accepted += accepted ? 1 : 0;
    if (!accepted || result.ended()) break;
  }
  return {};
}

// The sequence's next token. `draft`: the one that was guessed for its place, or null.
Result<TokenId> Engine::sample(const StepRow& row, std::span<const float> logits,
                               const Draft* draft, StepResult& result) {
  if (Status finite = check_finite(logits); !finite) {
    result.finite = false;
    return finite.error();
  }
  SamplingState& sampling = row.sequence->sampling;
  LogitMask mask;
  LogitBias bias;
  if (row.rules != nullptr) {
    const auto allowed = row.rules->mask(static_cast<int>(sampling.outputs()), config().vocab_size);
    if (!allowed) return allowed.error();
    mask = *allowed;
    bias = row.rules->logit_bias();
  }
  const auto target = sampler_.distribution(logits, sampling, mask, bias);
  if (!target) return target.error();
  const TokenId token = output_token(**target, draft == nullptr ? Draft{} : *draft,
                                     sampling.params().seed, sampling.outputs());
  REPLAYSSM_TRY(put_out(row, token, result));
  if (row.rules != nullptr && row.rules->top_logprobs()) {
    result.tokens.back().logprobs = token_logprobs(logits, token, *row.rules->top_logprobs());
  }
  return token;
}

// Appends a token to the row's sequence and to what the step gave it.
Status Engine::put_out(const StepRow& row, TokenId token, StepResult& result) {
  SampledToken sampled{token, std::nullopt};
  if (row.rules != nullptr) {
    REPLAYSSM_TRY(row.rules->accept(token));
    sampled.ends = row.rules->ends(token);
    sampled.last = !sampled.ends && row.rules->complete();
  }
  result.tokens.push_back(std::move(sampled));
  row.sequence->tokens.push_back(token);
  row.sequence->sampling.add_output(token);
  return {};
}

}  // namespace replayssm
