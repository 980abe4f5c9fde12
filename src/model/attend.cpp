#include "model/attend.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/attend.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "model/dot_tile-inl.h"
#include "model/vector_math-inl.h"

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

// Where the keys and values of one block of positions lie, for the task's kv head.
template <class T>
struct KeyBlock {
  int first = 0;  // position
  int keys = 0;
  const T* key_rows[kKeyBlock];
  const T* value_rows[kKeyBlock];
};

template <class T>
void find_keys(const AttentionTask& task, int first, int end, KeyBlock<T>& block) {
  const auto dim = static_cast<std::size_t>(task.shape.head_dim);
  const std::size_t position_stride = static_cast<std::size_t>(task.shape.kv_heads) * dim;
  block.first = first;
  block.keys = std::min(kKeyBlock, end - first);
  for (int j = 0; j < block.keys; ++j) {
    const int position = first + j;
    if (task.own_first >= 0 && position >= task.own_first) {
      const std::size_t at = static_cast<std::size_t>(position - task.own_first) * position_stride +
                             static_cast<std::size_t>(task.kv_head) * dim;
      block.key_rows[j] = static_cast<const T*>(task.own.keys) + at;
      block.value_rows[j] = static_cast<const T*>(task.own.values) + at;
      continue;
    }
    const int page = task.pages[static_cast<std::size_t>(position / task.kv.page_tokens)].value;
    const int row = page * task.kv.page_tokens + position % task.kv.page_tokens;
    const std::size_t at = static_cast<std::size_t>(row) * position_stride +
                           static_cast<std::size_t>(task.kv_head) * dim;
    block.key_rows[j] = static_cast<const T*>(task.kv.keys) + at;
    block.value_rows[j] = static_cast<const T*>(task.kv.values) + at;
  }
}

// Scores of R query rows from `row` on with every key of the block.
template <int R, class T>
void score_rows(const AttentionTask& task, const KeyBlock<T>& block, int row) {
  const auto dim = static_cast<std::size_t>(task.shape.head_dim);
  const float scale = 1.0f / std::sqrt(static_cast<float>(task.shape.head_dim));
  const float* queries = task.queries + static_cast<std::size_t>(row) * dim;
  const auto tile = [&]<int C>(int key) {
    const T* keys[C];
    for (int c = 0; c < C; ++c) keys[c] = block.key_rows[key + c];
    float dots[R][C];
    dot_tile<R, C, T>(queries, dim, keys, dim, dots);
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) {
        task.weights[(row + r) * kKeyBlock + key + c] = dots[r][c] * scale;
      }
    }
  };
  int key = 0;
  for (; key + 3 <= block.keys; key += 3) tile.template operator()<3>(key);
  for (; key < block.keys; ++key) tile.template operator()<1>(key);
}

// Calls f<R>(row) for tiles of up to 4 rows, of nearly equal height, that cover [0, rows).
template <class F>
HWY_INLINE void for_each_tile(int rows, F&& f) {
  constexpr int kTile = 4;
  int left = (rows + kTile - 1) / kTile;
  for (int row = 0; row < rows; --left) {
    const int height = (rows - row) / left;
    switch (height) {
      case 1:
        f.template operator()<1>(row);
        break;
      case 2:
        f.template operator()<2>(row);
        break;
      case 3:
        f.template operator()<3>(row);
        break;
      default:
        f.template operator()<kTile>(row);
        break;
    }
    row += height;
  }
}

// Keys of a block, by their place in it: [first, end).
struct SeenKeys {
  int first = 0;
  int end = 0;

  bool any() const { return first < end; }
  bool operator==(const SeenKeys&) const = default;
};

// What the task's `token` sees of the block that begins at position `block`.
SeenKeys seen_keys(const AttentionTask& task, int token, int block) {
  const int position = task.first_position + token;
  const int end = task.sight.whole_span ? task.span_end : position + 1;
  int begin = task.sight.first_key;
  if (task.sight.window > 0) begin = std::max(begin, position + 1 - task.sight.window);
  return {std::max(begin - block, 0), std::min(end - block, kKeyBlock)};
}

template <class T>
void attend_as(const AttentionTask& task) {
  const int group = task.shape.group();
  const int rows = task.tokens * group;
  const auto dim = static_cast<std::size_t>(task.shape.head_dim);
  std::fill_n(task.sums, static_cast<std::size_t>(rows) * dim, 0.0f);
  std::fill_n(task.largest, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(task.totals, rows, 0.0f);

  const int end = task.sight.whole_span ? task.span_end : task.first_position + task.tokens;
  int begin = task.sight.first_key;  // blocks begin here, whatever a window leaves of them
  if (task.sight.window > 0) {
    const int oldest = task.first_position + 1 - task.sight.window;
    if (oldest > begin) begin += (oldest - begin) / kKeyBlock * kKeyBlock;
  }
  KeyBlock<T> block;
  for (int first = begin; first < end; first += kKeyBlock) {
    find_keys(task, first, end, block);
    for_each_tile(rows, [&]<int R>(int row) { score_rows<R, T>(task, block, row); });
    for (int token = 0; token < task.tokens; ++token) {
      const SeenKeys seen = seen_keys(task, token, first);
      if (!seen.any()) continue;
      for (int row = token * group; row < (token + 1) * group; ++row) {
        float* scores = task.weights + row * kKeyBlock;
        std::fill_n(scores, seen.first, -std::numeric_limits<float>::infinity());
        absorb_scores(scores, seen.end, dim, task.sums + static_cast<std::size_t>(row) * dim,
                      task.largest + row, task.totals + row);
      }
    }
    // Tokens next to each other that see the same keys share their values.
    for (int token = 0; token < task.tokens;) {
      const SeenKeys seen = seen_keys(task, token, first);
      const int at = token * group;
      do ++token;
      while (token < task.tokens && seen_keys(task, token, first) == seen);
      if (!seen.any()) continue;
      for_each_tile(token * group - at, [&]<int R>(int row) {
        add_values<R, T>(task.weights + (at + row) * kKeyBlock + seen.first,
                         block.value_rows + seen.first, seen.end - seen.first, dim,
                         task.sums + static_cast<std::size_t>(at + row) * dim);
      });
    }
  }
  const auto all = static_cast<std::size_t>(rows);
  for (std::size_t row = 0; row < all; ++row) {
    float* sums = task.sums + row * dim;
    for (std::size_t i = 0; i < dim; ++i) sums[i] /= task.totals[row];
  }
}

void attend_f32(const AttentionTask& task) { attend_as<float>(task); }
void attend_bf16(const AttentionTask& task) { attend_as<bf16>(task); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace replayssm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replayssm {

HWY_EXPORT(attend_f32);
HWY_EXPORT(attend_bf16);

void attend(const AttentionTask& task) {
  task.kv.type == DType::bf16 ? HWY_DYNAMIC_DISPATCH(attend_bf16)(task)
                              : HWY_DYNAMIC_DISPATCH(attend_f32)(task);
}

}  // namespace replayssm
#endif  // HWY_ONCE
