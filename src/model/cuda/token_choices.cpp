#include "model/cuda/token_choices.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "ops/cuda/cuda_check.h"

namespace replayssm::cuda {
namespace {

static_assert(kChoiceAlternatives == kMostAlternatives);
static_assert(sizeof(TokenId) == sizeof(int));

std::size_t mask_words(int vocabulary) { return (static_cast<std::size_t>(vocabulary) + 31) / 32; }

// Tokens that a mask allows, of the vocabulary.
int allowed(LogitMask mask, int vocabulary) {
  int count = 0;
  for (std::size_t word = 0; word < std::min(mask.size(), mask_words(vocabulary)); ++word) {
    const int bits = std::min(32, vocabulary - static_cast<int>(word) * 32);
    const std::uint32_t inside = bits == 32 ? ~std::uint32_t{0} : (std::uint32_t{1} << bits) - 1;
    count += std::popcount(mask[word] & inside);
  }
  return count;
}

// Penalties and biases of a row, each token once.
std::vector<LogitChange> changes_of(const TokenChoice& choice, int vocabulary) {
  std::vector<LogitChange> changes;
  const auto known = [&](TokenId token) { return token >= 0 && token < vocabulary; };
  if (choice.penalises()) {
    for (const SeenToken& seen : choice.seen) {
      if (known(seen.token)) changes.push_back({seen.token, seen.in_output, 0, 0});
    }
  }
  const auto less = [](const LogitChange& a, const LogitChange& b) { return a.token < b.token; };
  if (!choice.bias.empty()) std::sort(changes.begin(), changes.end(), less);
  for (const auto& [token, added] : choice.bias) {
    if (!known(token)) continue;
    const LogitChange change{token, -1, added, 0};
    const auto at = std::lower_bound(changes.begin(), changes.end(), change, less);
    if (at != changes.end() && at->token == token) {
      at->added += added;
    } else {
      changes.insert(at, change);
    }
  }
  return changes;
}

RowChoice numbers_of(const TokenChoice& choice, int vocabulary) {
  RowChoice row;
  row.temperature = choice.temperature;
  row.top_p = choice.top_p;
  row.min_p = choice.min_p;
  row.uniform = choice.uniform;
  row.repetition_penalty = choice.repetition_penalty;
  row.presence_penalty = choice.presence_penalty;
  row.frequency_penalty = choice.frequency_penalty;
  row.draws = choice.greedy() ? 0 : 1;
  const int candidates =
      choice.mask.empty() || choice.top_k == 0 ? vocabulary : allowed(choice.mask, vocabulary);
  row.top_k = choice.top_k < candidates ? choice.top_k : 0;
  row.by_logit = row.top_k > 0 || choice.top_p < 1 ? 1 : 0;
  row.top_logprobs = choice.top_logprobs ? std::max(0, *choice.top_logprobs) : -1;
  row.logprobs_of = choice.logprobs_of;
  return row;
}

ChosenToken chosen_token(int token, int alternatives, const RowLogprobs& given) {
  ChosenToken chosen;
  if (token < 0) {
    chosen.finite = token != kNotFinite;
    chosen.error = chosen.finite
                       ? Error{"logit mask: no token is allowed; expected at least one"}
                       : Error{
                             "logits: one that is not finite is not accepted; expected finite "
                             "numbers"};
    return chosen;
  }
  chosen.token = token;
  if (alternatives < 0) return chosen;
  TokenLogprobs& logprobs = chosen.logprobs.emplace();
  logprobs.logprob = given.logit - given.normaliser;
  for (int i = 0; i < given.alternatives; ++i) {
    logprobs.top.push_back({given.token[i], given.token_logit[i] - given.normaliser});
  }
  return chosen;
}

}  // namespace

Result<TokenChoices> TokenChoices::make(int rows, int logit_rows, int vocabulary,
                                        cudaStream_t stream) {
  if (vocabulary > kChoiceVocabulary) {
    return refuse("vocab_size", vocabulary, fmt::format("at most {} on cuda", kChoiceVocabulary));
  }
  TokenChoices made;
  made.vocabulary_ = vocabulary;
  made.stream_ = stream;
  const auto count = static_cast<std::size_t>(logit_rows);
  const std::pair<DeviceBuffer*, std::size_t> buffers[] = {
      {&made.table_, static_cast<std::size_t>(choice_table_bytes(rows, logit_rows, vocabulary))},
      {&made.bins_, count * sizeof(ChoiceBins)},
      {&made.lists_, count * sizeof(ChoiceList)},
      {&made.logprobs_, count * sizeof(RowLogprobs)}};
  for (const auto& [buffer, bytes] : buffers) {
    auto memory = DeviceBuffer::make(bytes);
    if (!memory) return memory.error();
    *buffer = std::move(*memory);
  }
  for (const DeviceBuffer* buffer : {&made.bins_, &made.lists_}) {
    REPLAYSSM_TRY(
        REPLAYSSM_CUDA_STATUS(cudaMemsetAsync(buffer->as<void>(), 0, buffer->bytes(), stream)));
  }
  for (Slot& slot : made.slots_) {
    const std::pair<PinnedBuffer*, std::size_t> parts[] = {
        {&slot.table, made.table_.bytes()},
        {&slot.tokens, count * sizeof(int)},
        {&slot.logprobs, count * sizeof(RowLogprobs)}};
    for (const auto& [buffer, bytes] : parts) {
      auto memory = PinnedBuffer::make(bytes);
      if (!memory) return memory.error();
      *buffer = std::move(*memory);
    }
    auto event = Event::make();
    if (!event) return event.error();
    slot.done = std::move(*event);
  }
  REPLAYSSM_TRY(prepare_token_choice());
  return made;
}

// The table holds any one row, and most steps whole. Others go in parts, each of as many rows as it
// holds: the next part's copy comes when the launches of the one before have read theirs.
Status TokenChoices::launch_parts(Slot& slot, std::span<const TokenChoice> choices,
                                  const TokenChoiceSteps& steps, TokenChoiceArgs args) {
  const std::size_t words = mask_words(vocabulary_);
  struct Part {
    std::size_t first = 0, rows = 0;
    std::size_t changes = 0, masks = 0;
    std::size_t changes_at() const { return rows * sizeof(RowChoice); }
    std::size_t masks_at() const { return changes_at() + changes * sizeof(LogitChange); }
    std::size_t bytes(std::size_t mask_bytes) const {
      return (masks_at() + masks * mask_bytes + alignof(RowChoice) - 1) / alignof(RowChoice) *
             alignof(RowChoice);
    }
  };
  const std::size_t mask_bytes = words * sizeof(std::uint32_t);
  std::vector<std::vector<LogitChange>> changes;
  std::vector<Part> parts(1);
  std::size_t bytes = 0;  // of all parts but the last
  for (std::size_t i = 0; i < choices.size(); ++i) {
    changes.push_back(changes_of(choices[i], vocabulary_));
    Part longer = parts.back();
    longer.rows += 1;
    longer.changes += changes.back().size();
    longer.masks += choices[i].mask.empty() ? 0 : 1;
    if (longer.bytes(mask_bytes) > table_.bytes() && parts.back().rows > 0) {
      bytes += parts.back().bytes(mask_bytes);
      longer = {i, 1, changes.back().size(), choices[i].mask.empty() ? 0u : 1u};
      parts.emplace_back();
    }
    parts.back() = longer;
  }
  REPLAYSSM_TRY(grow(slot.table, bytes + parts.back().bytes(mask_bytes)));

  std::byte* const device = table_.as<std::byte>();
  std::byte* host = slot.table.as<std::byte>();
  for (const Part& part : parts) {
    auto* const rows = reinterpret_cast<RowChoice*>(host);
    std::size_t change_at = part.changes_at();
    std::size_t mask_at = part.masks_at();
    for (std::size_t r = 0; r < part.rows; ++r) {
      const TokenChoice& choice = choices[part.first + r];
      const std::vector<LogitChange>& own = changes[part.first + r];
      RowChoice row = numbers_of(choice, vocabulary_);
      row.change_count = static_cast<int>(own.size());
      row.changes = reinterpret_cast<LogitChange*>(device + change_at);
      if (!own.empty()) std::memcpy(host + change_at, own.data(), own.size() * sizeof(LogitChange));
      change_at += own.size() * sizeof(LogitChange);
      if (!choice.mask.empty()) {
        row.mask = reinterpret_cast<const std::uint32_t*>(device + mask_at);
        // Words that the mask does not have allow nothing.
        std::memset(host + mask_at, 0, mask_bytes);
        std::memcpy(host + mask_at, choice.mask.data(),
                    std::min(words, choice.mask.size()) * sizeof(std::uint32_t));
        mask_at += mask_bytes;
      }
      std::construct_at(rows + r, row);
    }
    const std::size_t part_bytes = part.bytes(mask_bytes);
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
        cudaMemcpyAsync(device, host, part_bytes, cudaMemcpyHostToDevice, stream_)));
    const auto first = static_cast<std::int64_t>(part.first);
    TokenChoiceArgs of_part = args;
    of_part.logits += first * args.stride;
    of_part.best_parts += first * kBestParts;
    of_part.chosen += first;
    of_part.choices = table_.as<RowChoice>();
    of_part.bins = bins_.as<ChoiceBins>() + first;
    of_part.lists = lists_.as<ChoiceList>() + first;
    of_part.logprobs = logprobs_.as<RowLogprobs>() + first;
    of_part.rows = static_cast<int>(part.rows);
    of_part.vocabulary = vocabulary_;
    REPLAYSSM_TRY(launch_token_choice(of_part, steps, stream_));
    host += part_bytes;
  }
  return {};
}

Status TokenChoices::launch(std::span<const TokenChoice> choices, TokenChoiceArgs args) {
  newest_ = 1 - newest_;
  Slot& slot = slots_[static_cast<std::size_t>(newest_)];
  // A step that was never taken may still read the table.
  REPLAYSSM_TRY(slot.done.wait());
  slot.rows = static_cast<int>(choices.size());
  slot.alternatives.clear();
  TokenChoiceSteps steps;
  for (const TokenChoice& choice : choices) {
    steps.draws = steps.draws || !choice.greedy();
    steps.by_id = steps.by_id || (!choice.greedy() && choice.top_p >= 1);
    steps.by_logit = steps.by_logit || (!choice.greedy() && (choice.top_k > 0 || choice.top_p < 1));
    steps.logprobs = steps.logprobs || choice.top_logprobs;
    steps.changes =
        steps.changes || choice.penalises() || !choice.bias.empty() || !choice.mask.empty();
    slot.alternatives.push_back(choice.top_logprobs.value_or(-1));
  }
  if (steps.draws || steps.logprobs || steps.changes) {
    REPLAYSSM_TRY(launch_parts(slot, choices, steps, args));
  }
  const auto count = choices.size();
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaMemcpyAsync(
      slot.tokens.as<int>(), args.chosen, count * sizeof(int), cudaMemcpyDeviceToHost, stream_)));
  if (steps.logprobs) {
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
        cudaMemcpyAsync(slot.logprobs.as<void>(), logprobs_.as<void>(), count * sizeof(RowLogprobs),
                        cudaMemcpyDeviceToHost, stream_)));
  }
  REPLAYSSM_TRY(slot.done.record(stream_));
  ++launched_;
  return {};
}

Result<std::span<const ChosenToken>> TokenChoices::take() {
  if (launched_ == 0) return Error{"take: no step is launched"};
  const int oldest = launched_ == 2 ? 1 - newest_ : newest_;
  Slot& slot = slots_[static_cast<std::size_t>(oldest)];
  REPLAYSSM_TRY(slot.done.wait());
  --launched_;
  slot.chosen.clear();
  for (int i = 0; i < slot.rows; ++i) {
    slot.chosen.push_back(chosen_token(slot.tokens.as<int>()[i],
                                       slot.alternatives[static_cast<std::size_t>(i)],
                                       slot.logprobs.as<RowLogprobs>()[i]));
  }
  return std::span<const ChosenToken>(slot.chosen);
}

}  // namespace replayssm::cuda
