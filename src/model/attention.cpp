#include "model/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "model/dot_tile-inl.h"
#include "model/vector_math-inl.h"

#ifndef REPLAYSSM_MODEL_ATTENTION_TASK
#define REPLAYSSM_MODEL_ATTENTION_TASK
namespace replayssm {

// Keys that one step of the running softmax covers. Blocks begin at multiples of it, so the order
// of operations of a query is a function of its position.
inline constexpr int kKeyBlock = 64;

// Query rows (tokens times query heads of one kv head) that share a pass over the keys.
inline constexpr int kQueryRows = 32;

// What one thread computes: some tokens of one span for one kv head.
struct AttentionTask {
  const AttentionSpan* span = nullptr;
  int first = 0;  // of the span's tokens
  int tokens = 0;
  int kv_head = 0;
  AttentionShape shape;
  KvView kv;
  const float* q = nullptr;  // as Attention::run
  float* out = nullptr;
  float* queries = nullptr;  // scratch [rows, head_dim], rows = tokens * group
  float* sums = nullptr;     // scratch [rows, head_dim]
  float* weights = nullptr;  // scratch [rows, kKeyBlock]
  float* largest = nullptr;  // scratch [rows]
  float* totals = nullptr;   // scratch [rows]
};

}  // namespace replayssm
#endif

HWY_BEFORE_NAMESPACE();
namespace replayssm {
namespace HWY_NAMESPACE {
namespace {

// sums[r] += sum over keys [0, count) of weights[r][key] * values[key], keys ascending.
template <int R, class T>
HWY_INLINE void add_values(const float* HWY_RESTRICT weights, const T* const* values, int count,
                           std::size_t dim, float* HWY_RESTRICT sums) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  constexpr int kVectors = 3;
  std::size_t at = 0;
  for (; at + kVectors * lanes <= dim; at += kVectors * lanes) {
    FloatVec acc[R][kVectors];
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        acc[r][v] = hn::LoadU(
            d, sums + static_cast<std::size_t>(r) * dim + at + static_cast<std::size_t>(v) * lanes);
      }
    }
    for (int key = 0; key < count; ++key) {
      FloatVec value[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        value[v] = load_widened(d, values[key] + at + static_cast<std::size_t>(v) * lanes);
      }
      for (int r = 0; r < R; ++r) {
        const FloatVec weight = hn::Set(d, weights[r * kKeyBlock + key]);
        for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(weight, value[v], acc[r][v]);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(
            acc[r][v], d,
            sums + static_cast<std::size_t>(r) * dim + at + static_cast<std::size_t>(v) * lanes);
      }
    }
  }
  for (; at < dim; at += lanes) {
    const std::size_t n = std::min(lanes, dim - at);
    for (int r = 0; r < R; ++r) {
      float* sum = sums + static_cast<std::size_t>(r) * dim + at;
      HWY_ALIGN float padded[HWY_MAX_BYTES / sizeof(float)] = {};
      std::memcpy(padded, sum, n * sizeof(float));
      FloatVec acc = hn::Load(d, padded);
      for (int key = 0; key < count; ++key) {
        T value[HWY_MAX_BYTES / sizeof(float)] = {};
        std::memcpy(value, values[key] + at, n * sizeof(T));
        acc = hn::MulAdd(hn::Set(d, weights[r * kKeyBlock + key]), load_widened(d, value), acc);
      }
      hn::Store(acc, d, padded);
      std::memcpy(sum, padded, n * sizeof(float));
    }
  }
}

// Takes the scores of the first `count` keys of a block into a row's running softmax: scores become
// weights, sums and totals are brought to the new largest score.
void absorb_scores(float* scores, int count, std::size_t dim, float* sums, float* largest,
                   float* total) {
  const FloatTag d;
  float top = *largest;
  for (int key = 0; key < count; ++key) top = std::max(top, scores[key]);
  const MathVec shift = hn::Set(d, top);
  MathVec block_total = hn::Zero(d);
  const std::size_t lanes = hn::Lanes(d);
  // Scores past `count` are another row's business or stale; they are selected away.
  for (std::size_t key = 0; key < static_cast<std::size_t>(count); key += lanes) {
    const auto live = hn::FirstN(d, static_cast<std::size_t>(count) - key);
    const MathVec e = exp_keeping_nan(d, hn::Sub(hn::LoadU(d, scores + key), shift));
    const MathVec weight = hn::IfThenElseZero(live, e);
    hn::StoreU(weight, d, scores + key);
    block_total = hn::Add(block_total, weight);
  }
  const float decay =
      hn::GetLane(exp_keeping_nan(d, hn::Set(d, *largest - top)));  // 0 at the first block
  *total = *total * decay + hn::GetLane(hn::SumOfLanes(d, block_total));
  *largest = top;
  if (decay == 1.0f) return;
  const MathVec factor = hn::Set(d, decay);
  for_each_vector(dim, [&](auto load, auto store) { store(hn::Mul(load(sums), factor), sums); });
}

template <class T>
void attend(const AttentionTask& task) {
  const AttentionShape& shape = task.shape;
  const int group = shape.group();
  const int rows = task.tokens * group;
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  const std::size_t token_stride = static_cast<std::size_t>(shape.heads) * dim;
  const std::size_t position_stride = static_cast<std::size_t>(shape.kv_heads) * dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  const std::size_t first_token = static_cast<std::size_t>(task.span->first_token + task.first);
  const std::size_t heads_at = static_cast<std::size_t>(task.kv_head * group) * dim;
  const std::size_t token_values = static_cast<std::size_t>(group) * dim;
  for (std::size_t t = 0; t < static_cast<std::size_t>(task.tokens); ++t) {
    std::memcpy(task.queries + t * token_values,
                task.q + (first_token + t) * token_stride + heads_at, token_values * sizeof(float));
  }
  std::fill_n(task.sums, static_cast<std::size_t>(rows) * dim, 0.0f);
  std::fill_n(task.largest, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(task.totals, rows, 0.0f);

  const int first_position = task.span->start.tokens + task.first;
  const int end = first_position + task.tokens;  // keys that the last token sees
  const auto count_for = [&](int row, int block) {
    return std::clamp(first_position + row / group + 1 - block, 0, kKeyBlock);
  };
  for (int block = 0; block < end; block += kKeyBlock) {
    const int keys = std::min(kKeyBlock, end - block);
    const T* key_rows[kKeyBlock];
    const T* value_rows[kKeyBlock];
    for (int j = 0; j < keys; ++j) {
      const int position = block + j;
      const auto page = static_cast<std::size_t>(
          task.span->pages[static_cast<std::size_t>(position / task.kv.page_tokens)].value);
      const std::size_t at = (page * static_cast<std::size_t>(task.kv.page_tokens) +
                              static_cast<std::size_t>(position % task.kv.page_tokens)) *
                                 position_stride +
                             static_cast<std::size_t>(task.kv_head) * dim;
      key_rows[j] = static_cast<const T*>(task.kv.keys) + at;
      value_rows[j] = static_cast<const T*>(task.kv.values) + at;
    }
    const auto score = [&]<int R, int C>(int row, int key) {
      const T* keys_of_tile[C];
      for (int c = 0; c < C; ++c) keys_of_tile[c] = key_rows[key + c];
      float sums[R][C];
      dot_tile<R, C, T>(task.queries + static_cast<std::size_t>(row) * dim, dim, keys_of_tile, dim,
                        sums);
      for (int r = 0; r < R; ++r) {
        for (int c = 0; c < C; ++c) {
          task.weights[(row + r) * kKeyBlock + key + c] = sums[r][c] * scale;
        }
      }
    };
    int row = 0;
    while (row < rows) {
      const bool four = row + 4 <= rows;
      int key = 0;
      for (; key + 3 <= keys; key += 3) {
        four ? score.template operator()<4, 3>(row, key)
             : score.template operator()<1, 3>(row, key);
      }
      for (; key < keys; ++key) {
        four ? score.template operator()<4, 1>(row, key)
             : score.template operator()<1, 1>(row, key);
      }
      row += four ? 4 : 1;
    }
    for (int r = 0; r < rows; ++r) {
      const int count = count_for(r, block);
      if (count == 0) continue;
      absorb_scores(task.weights + r * kKeyBlock, count, dim,
                    task.sums + static_cast<std::size_t>(r) * dim, task.largest + r,
                    task.totals + r);
    }
    // Rows that see equally many keys of the block share its values.
    for (row = 0; row < rows;) {
      const int count = count_for(row, block);
      const bool four = row + 4 <= rows && count_for(row + 3, block) == count;
      float* sums = task.sums + static_cast<std::size_t>(row) * dim;
      const float* weights = task.weights + row * kKeyBlock;
      if (count > 0 && four) add_values<4, T>(weights, value_rows, count, dim, sums);
      if (count > 0 && !four) add_values<1, T>(weights, value_rows, count, dim, sums);
      row += four ? 4 : 1;
    }
  }
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
    const std::size_t token = r / static_cast<std::size_t>(group);
    const std::size_t head = r % static_cast<std::size_t>(group);
    float* to = task.out + (first_token + token) * token_stride + heads_at + head * dim;
    const float* sums = task.sums + r * dim;
    for (std::size_t i = 0; i < dim; ++i) to[i] = sums[i] / task.totals[r];
  }
}

void attend_f32(const AttentionTask& task) { attend<float>(task); }
void attend_bf16(const AttentionTask& task) { attend<bf16>(task); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace replayssm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replayssm {
namespace {

HWY_EXPORT(attend_f32);
HWY_EXPORT(attend_bf16);

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
    const auto rows = static_cast<std::size_t>(tile_rows(shape_));
    const auto dim = static_cast<std::size_t>(shape_.head_dim);
    float* scratch = scratch_.data() + static_cast<std::size_t>(thread) * scratch_elements(shape_);
    AttentionTask task;
    task.span = &spans[tile.span];
    task.first = tile.first;
    task.tokens = tile.tokens;
    task.kv_head = static_cast<int>(index % heads);
    task.shape = shape_;
    task.kv = kv;
    task.q = q;
    task.out = out;
    task.queries = scratch;
    task.sums = task.queries + rows * dim;
    task.weights = task.sums + rows * dim;
    task.largest = task.weights + rows * kKeyBlock;
    task.totals = task.largest + rows;
    kv.type == DType::bf16 ? HWY_DYNAMIC_DISPATCH(attend_bf16)(task)
                           : HWY_DYNAMIC_DISPATCH(attend_f32)(task);
  };
  pool_.parallel_for(tiles_.size() * heads, std::cref(work));
}

}  // namespace replayssm
#endif  // HWY_ONCE
