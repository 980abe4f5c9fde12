#include "model/cuda/step_tables.h"

#include <algorithm>

#include "model/cuda/decoder_kernels.h"
#include "ops/cuda/cuda_check.h"

namespace replayssm::cuda {
namespace {

constexpr std::size_t kSectionWords = 4;  // sections begin at multiples of so many words

}  // namespace

Result<StepTables> StepTables::make(const StepSizes& sizes) {
  StepTables tables;
  for (Written& written : tables.written_) {
    auto event = Event::make();
    if (!event) return event.error();
    written.copied = std::move(*event);
  }
  const std::size_t bytes = step_table_words(sizes) * sizeof(int);
  for (Written& written : tables.written_) {
    auto words = PinnedBuffer::make(bytes);
    if (!words) return words.error();
    written.words = std::move(*words);
  }
  auto device = DeviceBuffer::make(bytes);
  if (!device) return device.error();
  tables.device_ = std::move(*device);
  return tables;
}

const int* StepTables::section(std::span<const int> words) {
  const std::size_t at = used_;
  std::copy(words.begin(), words.end(), written_[newest_].words.as<int>() + at);
  used_ += (words.size() + kSectionWords - 1) / kSectionWords * kSectionWords;
  return device_.as<int>() + at;
}

StepRows StepTables::rows_of(std::span<const RowTokens> rows) {
  std::vector<int> row, first_token, tokens;
  for (const RowTokens& r : rows) {
    row.push_back(r.row.value);
    first_token.push_back(r.first_token);
    tokens.push_back(r.tokens);
  }
  const std::vector<ConvTask> tasks = conv_tasks(rows);
  static_assert(sizeof(ConvTask) % sizeof(int) == 0);
  StepRows made;
  made.count = static_cast<int>(rows.size());
  made.row = section(row);
  made.first_token = section(first_token);
  made.tokens = section(tokens);
  made.tasks =
      reinterpret_cast<const ConvTask*>(section({reinterpret_cast<const int*>(tasks.data()),
                                                 tasks.size() * (sizeof(ConvTask) / sizeof(int))}));
  made.task_count = static_cast<int>(tasks.size());
  return made;
}

Status StepTables::write(const Batch& batch, int page_tokens, cudaStream_t stream) {
  std::vector<int> tokens(batch.tokens.begin(), batch.tokens.end());
  std::vector<int> positions(tokens.size(), 0), places(tokens.size(), -1);
  std::vector<int> logit_tokens, pages, last_page_tokens;
  std::vector<RowTokens> windows, chunks;
  query_start_.assign(1, 0);
  page_start_.assign(1, 0);
  for (const BatchRow& row : batch.rows) {
    const RowTokens& span = row.span;
    (span.phase == Phase::prefill ? chunks : windows).push_back(span);
    const int end = row.start.tokens + span.tokens;
    for (int n = 0; n < span.tokens; ++n) {
      const auto at = static_cast<std::size_t>(span.first_token + n);
      if (row.null) {
        tokens[at] = -1;
        continue;
      }
      if (n == 0 && row.chosen_in_row >= 0) tokens[at] = token_chosen_in(row.chosen_in_row);
      positions[at] = row.start.tokens + n;
      if (row.pages.empty()) continue;  // no attention layers
      const auto page = static_cast<std::size_t>(positions[at] / page_tokens);
      places[at] = row.pages[page].value * page_tokens + positions[at] % page_tokens;
    }
    // A null row reads what page 0 holds, whatever it is: its results are nobody's.
    const int read = row.null || row.pages.empty() ? span.tokens : end;
    const int read_pages = (read + page_tokens - 1) / page_tokens;
    for (int page = 0; page < read_pages; ++page) {
      pages.push_back(
          row.null || row.pages.empty() ? 0 : row.pages[static_cast<std::size_t>(page)].value);
    }
    last_page_tokens.push_back(read - (read_pages - 1) * page_tokens);
    query_start_.push_back(span.first_token + span.tokens);
    page_start_.push_back(static_cast<int>(pages.size()));
    for (int n = span.tokens - row.logits; n < span.tokens; ++n) {
      logit_tokens.push_back(span.first_token + n);
    }
  }
  token_count_ = static_cast<int>(tokens.size());
  logit_rows_ = static_cast<int>(logit_tokens.size());
  const std::size_t words =
      step_table_words(tokens.size(), batch.rows.size(), logit_tokens.size(), pages.size());
  newest_ = 1 - newest_;
  REPLAYSSM_TRY(written_[newest_].copied.wait());
  // Made for the largest step; one that is larger still takes what was not planned.
  REPLAYSSM_TRY(grow(written_[newest_].words, device_, words * sizeof(int)));
  used_ = 0;
  tokens_ = section(tokens);
  positions_ = section(positions);
  places_ = section(places);
  logit_tokens_ = section(logit_tokens);
  windows_ = rows_of(windows);
  chunks_ = rows_of(chunks);
  attention_.device_query_start = section(query_start_);
  attention_.device_page_start = section(page_start_);
  attention_.last_page_tokens = section(last_page_tokens);
  attention_.pages = section(pages);  // the only section of varying length: the last
  attention_.query_start = query_start_;
  attention_.page_start = page_start_;
  REPLAYSSM_TRY(
      REPLAYSSM_CUDA_STATUS(cudaMemcpyAsync(device_.as<void>(), written_[newest_].words.as<void>(),
                                            used_ * sizeof(int), cudaMemcpyHostToDevice, stream)));
  return written_[newest_].copied.record(stream);
}

}  // namespace replayssm::cuda
