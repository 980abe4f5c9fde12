#include "model/cuda/token_choices.h"

#include <algorithm>
#include <bit>
#include <cstring>
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

Status TokenChoices::reserve(Slot& slot, std::size_t bytes) {
  return grow(slot.table, table_, bytes);
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
    std::vector<RowChoice> rows;
    std::vector<LogitChange> changes;
    std::size_t masks = 0;
    for (const TokenChoice& choice : choices) {
      rows.push_back(numbers_of(choice, vocabulary_));
      const auto own = changes_of(choice, vocabulary_);
      rows.back().change_count = static_cast<int>(own.size());
      changes.insert(changes.end(), own.begin(), own.end());
      masks += choice.mask.empty() ? 0 : 1;
    }
    const std::size_t words = mask_words(vocabulary_);
    const std::size_t changes_at = rows.size() * sizeof(RowChoice);
    const std::size_t masks_at = changes_at + changes.size() * sizeof(LogitChange);
    const std::size_t bytes = masks_at + masks * words * sizeof(std::uint32_t);
    REPLAYSSM_TRY(reserve(slot, bytes));
    std::byte* const device = table_.as<std::byte>();
    std::byte* const host = slot.table.as<std::byte>();
    auto* change = reinterpret_cast<LogitChange*>(device + changes_at);
    std::size_t mask_at = masks_at;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i].changes = change;
      change += rows[i].change_count;
      const LogitMask mask = choices[i].mask;
      if (mask.empty()) continue;
      rows[i].mask = reinterpret_cast<const std::uint32_t*>(device + mask_at);
      // Words that the mask does not have allow nothing.
      std::memset(host + mask_at, 0, words * sizeof(std::uint32_t));
      std::memcpy(host + mask_at, mask.data(),
                  std::min(words, mask.size()) * sizeof(std::uint32_t));
      mask_at += words * sizeof(std::uint32_t);
    }
    std::memcpy(host, rows.data(), rows.size() * sizeof(RowChoice));
    std::memcpy(host + changes_at, changes.data(), changes.size() * sizeof(LogitChange));
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
        cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_)));
    args.choices = table_.as<RowChoice>();
    args.bins = bins_.as<ChoiceBins>();
    args.lists = lists_.as<ChoiceList>();
    args.logprobs = logprobs_.as<RowLogprobs>();
    args.rows = slot.rows;
    args.vocabulary = vocabulary_;
    REPLAYSSM_TRY(launch_token_choice(args, steps, stream_));
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
