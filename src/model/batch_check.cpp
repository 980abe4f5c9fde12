#include "model/batch_check.h"

#include <algorithm>

namespace replayssm {
namespace {

Status check_views(const SequenceViews& memory, const ModelConfig& config,
                   const ModelOptions& options) {
  const auto linear = static_cast<std::size_t>(config.count(LayerKind::linear));
  const auto attention = static_cast<std::size_t>(config.count(LayerKind::attention));
  const auto expect = [](std::string_view field, std::size_t value, std::size_t layers) -> Status {
    if (value == layers) return {};
    return refuse(field, value, fmt::format("one for each of the {} layers of its kind", layers));
  };
  REPLAYSSM_TRY(expect("memory.states", memory.states.size(), linear));
  if (options.recurrence == Recurrence::replay) {
    REPLAYSSM_TRY(expect("memory.rings", memory.rings.size(), linear));
  }
  REPLAYSSM_TRY(expect("memory.conv_rings", memory.conv_rings.size(), linear));
  REPLAYSSM_TRY(expect("memory.conv_tails", memory.conv_tails.size(), linear));
  REPLAYSSM_TRY(expect("memory.kv", memory.kv.size(), attention));
  for (const KvView& kv : memory.kv) {
    if (kv.type != DType::f32 && kv.type != DType::bf16) {
      return refuse("memory.kv.type", name_of(kv.type), "float32 or bfloat16");
    }
    if (kv.page_tokens < 1) return refuse("memory.kv.page_tokens", kv.page_tokens, "at least 1");
  }
  return {};
}

Status check_pages(const BatchRow& row, const SequenceViews& memory) {
  if (row.start.tokens < 0) return refuse("row.start", row.start.tokens, "at least 0");
  const int positions = row.start.tokens + row.span.tokens;
  for (const KvView& kv : memory.kv) {
    const int needed = (positions + kv.page_tokens - 1) / kv.page_tokens;
    if (row.pages.size() < static_cast<std::size_t>(needed)) {
      return refuse("row.pages", row.pages.size(),
                    fmt::format("at least {} for {} positions", needed, positions));
    }
    for (int i = 0; i < needed; ++i) {
      const PageId page = row.pages[static_cast<std::size_t>(i)];
      if (page.value < 0 || page.value >= kv.pages) {
        return refuse("row.pages", page.value, fmt::format("0 .. {}", kv.pages - 1));
      }
    }
  }
  return {};
}

}  // namespace

Status check_batch(const Batch& batch, const SequenceViews& memory, std::size_t logits,
                   const ModelConfig& config, const ModelOptions& options) {
  if (batch.tokens.size() > static_cast<std::size_t>(options.max_step_tokens)) {
    return refuse("batch.tokens", batch.tokens.size(),
                  fmt::format("at most max_step_tokens = {}", options.max_step_tokens));
  }
  for (const TokenId token : batch.tokens) {
    if (token < 0 || token >= config.vocab_size) {
      return refuse("batch.tokens", token, fmt::format("0 .. {}", config.vocab_size - 1));
    }
  }
  REPLAYSSM_TRY(check_views(memory, config, options));
  std::size_t tokens = 0;
  std::size_t logit_rows = 0;
  for (const BatchRow& row : batch.rows) {
    const RowTokens& span = row.span;
    if (span.row.value < 0 || span.row.value >= memory.cursors.rows) {
      return refuse("row.span.row", span.row.value,
                    fmt::format("0 .. {}", memory.cursors.rows - 1));
    }
    if (span.tokens < 1) return refuse("row.span.tokens", span.tokens, "at least 1");
    if (span.first_token < 0 || static_cast<std::size_t>(span.first_token) != tokens) {
      return refuse("row.span.first_token", span.first_token,
                    fmt::format("{}, the end of the row before", tokens));
    }
    const int longest = options.geometry.window_max();
    if (span.phase != Phase::prefill && span.tokens > longest) {
      return refuse("row.span.tokens", span.tokens, fmt::format("a window of 1 .. {}", longest));
    }
    if (row.logits < 0 || row.logits > span.tokens) {
      return refuse("row.logits", row.logits, fmt::format("0 .. {}", span.tokens));
    }
    if (!row.null) REPLAYSSM_TRY(check_pages(row, memory));
    tokens += static_cast<std::size_t>(span.tokens);
    logit_rows += static_cast<std::size_t>(row.logits);
  }
  if (tokens != batch.tokens.size()) {
    return refuse("batch.rows", tokens,
                  fmt::format("rows over all {} tokens", batch.tokens.size()));
  }
  const std::size_t wanted = logit_rows * static_cast<std::size_t>(config.vocab_rows);
  if (logits != wanted) return refuse("logits", logits, fmt::format("{} elements", wanted));
  return {};
}

Status check_draft(std::span<const TokenId> tokens, std::span<const DraftRow> rows,
                   const KvView& kv, std::size_t hidden, const ModelConfig& config,
                   const ModelOptions& options) {
  if (tokens.size() > static_cast<std::size_t>(options.max_step_tokens)) {
    return refuse("draft: tokens", tokens.size(),
                  fmt::format("at most {}", options.max_step_tokens));
  }
  for (const TokenId token : tokens) {
    if (token < 0 || token >= config.vocab_size) {
      return refuse("draft: token", token, fmt::format("0 .. {}", config.vocab_size - 1));
    }
  }
  int total = 0;
  for (const DraftRow& row : rows) {
    const int end = row.start.tokens + row.tokens;
    if (row.start.tokens < 1 || row.tokens < 1 || row.first_token != total) {
      return refuse("draft: row",
                    fmt::format("{} tokens from {} at position {}", row.tokens, row.first_token,
                                row.start.tokens),
                    fmt::format("at least 1, from {}, at a position above 0", total));
    }
    if (static_cast<int>(row.pages.size()) * kv.page_tokens < end) {
      return refuse("draft: pages of a row", row.pages.size(),
                    fmt::format("those of {} positions", end));
    }
    total += row.tokens;
  }
  const std::size_t wanted = tokens.size() * static_cast<std::size_t>(config.hidden_size);
  if (static_cast<std::size_t>(total) != tokens.size() || hidden != wanted) {
    return refuse("draft: elements of hidden", hidden, fmt::format("{}", wanted));
  }
  return {};
}

std::size_t wanted_rows(std::span<const DraftRow> rows) {
  return static_cast<std::size_t>(
      std::count_if(rows.begin(), rows.end(), [](const DraftRow& row) { return row.logits; }));
}

Status check_taps(const HiddenTaps& hidden, std::size_t tokens, const ModelConfig& config) {
  for (const int tap : hidden.taps) {
    if (tap < kTapFinalNorm || tap >= config.layer_count()) {
      return refuse("hidden.taps", tap,
                    fmt::format("{} .. {}", kTapFinalNorm, config.layer_count() - 1));
    }
  }
  const std::size_t wanted =
      tokens * hidden.taps.size() * static_cast<std::size_t>(config.hidden_size);
  if (hidden.values.size() == wanted) return {};
  return refuse("hidden.values", hidden.values.size(), fmt::format("{} elements", wanted));
}

}  // namespace replayssm
