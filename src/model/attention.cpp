#include "model/attention.h"

#include <algorithm>
#include <functional>
#include <type_traits>

#include "core/bfloat16.h"

namespace replayssm {
namespace {

// Query rows (tokens times query heads of one kv head) that share a pass over the keys.
constexpr int kQueryRows = 32;

int tile_rows(const AttentionShape& shape) { return std::max(kQueryRows, shape.group()); }

// Per thread: queries and sums [rows, head_dim], weights [rows, kKeyBlock], two scalars a row.
std::size_t scratch_elements(const AttentionShape& shape) {
  const auto rows = static_cast<std::size_t>(tile_rows(shape));
  return rows * (2 * static_cast<std::size_t>(shape.head_dim) + kKeyBlock + 2) + 16;
}

template <class T>
T as_stored(float value) {
  if constexpr (std::is_same_v<T, bf16>)
    return to_bf16(value);
  else
    return value;
}

template <class T>
void append_as(const AttentionSpan& span, const AttentionShape& shape, const float* keys,
               const float* values, const KvView& kv) {
  const std::size_t width =
      static_cast<std::size_t>(shape.kv_heads) * static_cast<std::size_t>(shape.head_dim);
  for (int i = 0; i < span.tokens; ++i) {
    const int position = span.start.tokens + i;
    const auto page = static_cast<std::size_t>(
        span.pages[static_cast<std::size_t>(position / kv.page_tokens)].value);
    const std::size_t at = (page * static_cast<std::size_t>(kv.page_tokens) +
                            static_cast<std::size_t>(position % kv.page_tokens)) *
                           width;
    const std::size_t from = static_cast<std::size_t>(span.first_token + i) * width;
    T* key = static_cast<T*>(kv.keys) + at;
    T* value = static_cast<T*>(kv.values) + at;
    for (std::size_t c = 0; c < width; ++c) key[c] = as_stored<T>(keys[from + c]);
    for (std::size_t c = 0; c < width; ++c) value[c] = as_stored<T>(values[from + c]);
  }
}

}  // namespace

void append_kv(const AttentionSpan& span, const AttentionShape& shape, const float* keys,
               const float* values, const KvView& kv) {
  kv.type == DType::bf16 ? append_as<bf16>(span, shape, keys, values, kv)
                         : append_as<float>(span, shape, keys, values, kv);
}

Attention::Attention(ThreadPool& pool, const AttentionShape& shape, int max_tokens)
    : pool_(pool),
      shape_(shape),
      scratch_(static_cast<std::size_t>(pool.threads()) * scratch_elements(shape)) {
  tiles_.reserve(static_cast<std::size_t>(max_tokens));
}

std::int64_t Attention::scratch_bytes(int threads, const AttentionShape& shape, int max_tokens) {
  return std::int64_t{threads} *
             static_cast<std::int64_t>(scratch_elements(shape) * sizeof(float)) +
         max_tokens * static_cast<std::int64_t>(sizeof(Tile));
}

void Attention::run(std::span<const AttentionSpan> spans, const float* q, const KvView& kv,
                    float* out) {
  const int tokens_per_tile = std::max(1, kQueryRows / shape_.group());
  tiles_.clear();
  for (std::size_t s = 0; s < spans.size(); ++s) {
    for (int first = 0; first < spans[s].tokens; first += tokens_per_tile) {
      tiles_.push_back({s, first, std::min(tokens_per_tile, spans[s].tokens - first)});
    }
  }
  const auto heads = static_cast<std::size_t>(shape_.kv_heads);
  const auto work = [&](std::size_t index, int thread) {
    // Later tokens see more keys: the longest tasks go first.
    const Tile& tile = tiles_[tiles_.size() - 1 - index / heads];
    run_tile(spans[tile.span], tile, static_cast<int>(index % heads), q, kv, out, thread);
  };
  pool_.parallel_for(tiles_.size() * heads, std::cref(work));
}

void Attention::run_tile(const AttentionSpan& span, const Tile& tile, int kv_head, const float* q,
                         const KvView& kv, float* out, int thread) {
  const auto rows = static_cast<std::size_t>(tile_rows(shape_));
  const auto dim = static_cast<std::size_t>(shape_.head_dim);
  float* scratch = scratch_.data() + static_cast<std::size_t>(thread) * scratch_elements(shape_);
  float* queries = scratch;
  AttentionTask task;
  task.shape = shape_;
  task.kv = kv;
  task.pages = span.pages;
  task.first_position = span.start.tokens + tile.first;
  task.span_end = span.start.tokens + span.tokens;
  task.sight = span.sight;
  if (span.own) {
    task.own = *span.own;
    task.own_first = span.start.tokens;
  }
  task.tokens = tile.tokens;
  task.kv_head = kv_head;
  task.queries = queries;
  task.sums = queries + rows * dim;
  task.weights = task.sums + rows * dim;
  task.largest = task.weights + rows * kKeyBlock;
  task.totals = task.largest + rows;

  const std::size_t token_stride = static_cast<std::size_t>(shape_.heads) * dim;
  const std::size_t group = static_cast<std::size_t>(shape_.group()) * dim;
  const std::size_t first = static_cast<std::size_t>(span.first_token + tile.first) * token_stride +
                            static_cast<std::size_t>(kv_head) * group;
  const auto tokens = static_cast<std::size_t>(tile.tokens);
  for (std::size_t t = 0; t < tokens; ++t) {
    std::copy_n(q + first + t * token_stride, group, queries + t * group);
  }
  attend(task);
  for (std::size_t t = 0; t < tokens; ++t) {
    std::copy_n(task.sums + t * group, group, out + first + t * token_stride);
  }
}

}  // namespace replayssm
