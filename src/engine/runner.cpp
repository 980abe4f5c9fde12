#include "engine/runner.h"

#include <algorithm>

namespace replayssm {

Runner::Runner(Model& model, LinearOps& ops, SequenceMemory& memory, const StepLimits& limits)
    : model_(model),
      ops_(ops),
      memory_(memory),
      limits_(limits),
      logits_stride_(static_cast<std::size_t>(model.config().vocab_rows)),
      logits_(static_cast<std::size_t>(limits.logit_rows) * logits_stride_) {}

std::span<const float> Runner::logits_row(std::span<const float> logits, int row) const {
  return logits.subspan(static_cast<std::size_t>(row) * logits_stride_,
                        static_cast<std::size_t>(model_.config().vocab_size));
}

Status Runner::check(std::span<const StepRow> rows) const {
  int tokens = 0;
  int logit_rows = 0;
  const FoldGeometry& geometry = memory_.layout().geometry;
  for (const StepRow& row : rows) {
    const Sequence& sequence = *row.sequence;
    const int window = row.phase == Phase::prefill  ? std::min(limits_.chunk, limits_.tokens)
                       : row.phase == Phase::decode ? 1
                                                    : geometry.window_max();
    if (row.tokens < 1 || row.tokens > window) {
      return refuse("step: tokens of a row", row.tokens, fmt::format("1 to {}", window));
    }
    const int drafts = static_cast<int>(row.drafts.size());
    const int waiting = sequence.waiting() + (chosen_in_row(sequence) >= 0 ? 1 : 0);
    if (row.tokens > waiting + drafts) {
      return refuse("step: tokens of a row", row.tokens,
                    fmt::format("at most the {} that wait and {} drafts", waiting, drafts));
    }
    if (drafts > 0 && row.tokens != waiting + drafts) {
      return refuse("step: tokens of a row with drafts", row.tokens,
                    fmt::format("all of the {} that wait and {} drafts", waiting, drafts));
    }
    if (row.logits < 0 || row.logits > row.tokens) {
      return refuse("step: logits of a row", row.logits, fmt::format("0 to {}", row.tokens));
    }
    const int end = sequence.evaluated() + row.tokens;
    if (static_cast<int>(sequence.memory.pages().size()) < memory_.layout().pages_for(end)) {
      return refuse("step: pages of a row", sequence.memory.pages().size(),
                    fmt::format("those of {} positions, prepared before the step", end));
    }
    tokens += row.tokens;
    logit_rows += row.logits;
  }
  if (tokens > limits_.tokens) {
    return refuse("step: tokens", tokens, fmt::format("at most {}", limits_.tokens));
  }
  if (logit_rows > limits_.logit_rows) {
    return refuse("step: rows of logits", logit_rows,
                  fmt::format("at most {}", limits_.logit_rows));
  }
  return {};
}

// Takes up the rows of a step.
Result<Runner::Begun> Runner::begin(std::span<const StepRow> rows) {
  REPLAYSSM_TRY(check(rows));
  rows_.assign(rows.begin(), rows.end());
  spans_.clear();

  Begun begun;
  Batch& batch = begun.batch;
  for (const StepRow& row : rows_) {
    const Sequence& sequence = *row.sequence;
    REPLAYSSM_TRY(memory_.follow_transfers(sequence.memory));
    RowTokens span;
    span.row = sequence.memory.row();
    span.first_token = static_cast<int>(batch.tokens.size());
    span.tokens = row.tokens;
    span.phase = row.phase;
    const int chosen = chosen_in_row(sequence);
    if (chosen >= 0) {
      const Launched& before = launched_.back();
      batch.tokens.push_back(
          model_.chooses_tokens()
              ? 0
              : std::max(0, before.chosen[static_cast<std::size_t>(chosen)].token));
    } else {
      const auto first = sequence.tokens.begin() + sequence.evaluated();
      batch.tokens.insert(batch.tokens.end(), first,
                          first + row.tokens - static_cast<int>(row.drafts.size()));
    }
    for (const Draft& draft : row.drafts) batch.tokens.push_back(draft.token);
    const auto pages =
        static_cast<std::size_t>(memory_.layout().pages_for(sequence.evaluated() + row.tokens));
    batch.rows.push_back({span, sequence.memory.cursor().committed,
                          sequence.memory.pages().first(pages), row.logits, false, chosen});
    spans_.push_back(span);
    begun.logit_rows += static_cast<std::size_t>(row.logits);
  }
  return begun;
}

Result<std::span<const float>> Runner::evaluate(std::span<const StepRow> rows) {
  const auto begun = begin(rows);
  if (!begun) return begun.error();
  const std::span<float> logits = logits_.span().first(begun->logit_rows * logits_stride_);
  REPLAYSSM_TRY(model_.forward(begun->batch, memory_.views(), logits,
                               hidden_taps(begun->batch.tokens.size())));
  return std::span<const float>(logits);
}

HiddenTaps Runner::hidden_taps(std::size_t tokens) {
  const std::size_t width = taps_.size() * static_cast<std::size_t>(model_.config().hidden_size);
  return {taps_, hidden_.span().first(tokens * width)};
}

int Runner::chosen_in_row(const Sequence& sequence) const {
  if (launched_.empty()) return -1;
  const auto& rows = launched_.back().of_row;
  const auto found = std::find(rows.begin(), rows.end(), &sequence);
  return found == rows.end() ? -1 : static_cast<int>(found - rows.begin());
}

Status Runner::launch(std::span<const StepRow> rows) {
  const auto begun = begin(rows);
  if (!begun) return begun.error();
  const HiddenTaps hidden = hidden_taps(begun->batch.tokens.size());
  REPLAYSSM_TRY(model_.chooses_tokens()
                    ? model_.launch(begun->batch, memory_.views(), hidden)
                    : model_.forward(begun->batch, memory_.views(),
                                     logits_.span().first(begun->logit_rows * logits_stride_),
                                     hidden));
  Launched& launched = launched_.emplace_back();
  for (const StepRow& row : rows) {
    launched.of_row.insert(launched.of_row.end(), static_cast<std::size_t>(row.logits),
                           row.sequence);
  }
  return {};
}

Status Runner::choose(std::span<const TokenChoice> choices) {
  if (launched_.empty() || choices.size() != launched_.back().of_row.size()) {
    return refuse("choose: choices", choices.size(), "one for every row of logits");
  }
  if (model_.chooses_tokens()) return model_.choose(choices);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const auto logits = logits_row(logits_.span(), static_cast<int>(i));
    launched_.back().chosen.push_back(sampler_.choose(logits, choices[i]));
  }
  return {};
}

Result<std::span<const ChosenToken>> Runner::take() {
  if (launched_.empty()) return Error{"take: no step is launched"};
  Launched oldest = std::move(launched_.front());
  launched_.pop_front();
  if (model_.chooses_tokens()) return model_.take();
  chosen_ = std::move(oldest.chosen);
  return std::span<const ChosenToken>(chosen_);
}

void Runner::forget_launched() {
  launched_.clear();
  model_.forget_launched();
}

Status Runner::commit(std::span<const int> accepted) {
  std::vector<int> all;
  if (accepted.empty()) {
    for (const StepRow& row : rows_) all.push_back(row.tokens);
    accepted = all;
  }
  if (accepted.size() != rows_.size()) {
    return refuse("commit: rows", accepted.size(), fmt::format("{}", rows_.size()));
  }
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    // A chunk is committed whole; without a ring nothing can be taken back.
    const bool whole =
        rows_[i].phase == Phase::prefill || memory_.layout().recurrence == Recurrence::packed;
    if (accepted[i] < (whole ? rows_[i].tokens : 0) || accepted[i] > rows_[i].tokens) {
      return refuse(
          "commit: accepted", accepted[i],
          whole ? fmt::format("{}", rows_[i].tokens) : fmt::format("0 to {}", rows_[i].tokens));
    }
  }
  AdvanceArgs args;
  args.geometry = memory_.layout().geometry;
  args.recurrence = memory_.layout().recurrence;
  args.cursors = memory_.views().cursors;
  args.rows = spans_;
  args.accepted = accepted;
  REPLAYSSM_TRY(ops_.advance(args));
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (accepted[i] > 0) count(rows_[i]);
    memory_.settle(rows_[i].sequence->memory, rows_[i].tokens, accepted[i], rows_[i].phase);
  }
  rows_.clear();
  return {};
}

void Runner::keep_hidden(std::span<const int> taps) {
  taps_.assign(taps.begin(), taps.end());
  hidden_ = AlignedBuffer<float>(static_cast<std::size_t>(limits_.tokens) * taps.size() *
                                 static_cast<std::size_t>(model_.config().hidden_size));
}

std::span<const float> Runner::hidden_of(int row) const {
  const RowTokens& span = spans_[static_cast<std::size_t>(row)];
  const std::size_t width = taps_.size() * static_cast<std::size_t>(model_.config().hidden_size);
  return hidden_.span().subspan(static_cast<std::size_t>(span.first_token) * width,
                                static_cast<std::size_t>(span.tokens) * width);
}

void Runner::count(const StepRow& row) {
  const SequenceLayout& layout = memory_.layout();
  const Cursor& cursor = row.sequence->memory.cursor();
  const StateTraffic traffic =
      layout.recurrence == Recurrence::packed ? packed_traffic(cursor.committed)
      : row.phase == Phase::prefill           ? chunk_traffic(cursor, row.tokens, layout.geometry)
                                              : window_traffic(cursor, layout.geometry);
  const std::int64_t unit = layout.linear_layers * layout.state_bytes();
  SequenceCounters& counters = row.sequence->counters;
  counters.steps += 1;
  counters.tokens_evaluated += row.tokens;
  counters.folds += traffic.folds;
  counters.state_bytes_read += traffic.reads * unit;
  counters.state_bytes_written += traffic.writes * unit;
}

}  // namespace replayssm
