// Attention over pages of keys and values, causal unless a span says otherwise. The value of one
// query head at one position depends on its query and on the keys and values that it sees alone, in
// ascending order: not on the batch, on how tokens were split into steps, on page ids or on
// threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/thread_pool.h"
#include "model/attend.h"
#include "model/config.h"
#include "model/model.h"

namespace replayssm {

// One batch row: `tokens` tokens at positions start .. start + tokens - 1, which are entries
// [first_token, first_token + tokens) of the per-token arrays.
struct AttentionSpan {
  Depth start;
  int first_token = 0;
  int tokens = 0;
  std::span<const PageId> pages;  // of positions 0 .. start + tokens - 1, in order
  Sight sight = {};
  // The tokens' keys and values, if pages hold those before `start` only.
  std::optional<OwnKv> own = std::nullopt;
};

// Copies the span's keys and values, [tokens, kv_heads, head_dim] each, into its pages, rounded to
// the pages' type.
void append_kv(const AttentionSpan& span, const AttentionShape& shape, const float* keys,
               const float* values, const KvView& kv);

// Owns the scratch of the threads, allocated once. Used by one thread at a time, the one that may
// call pool.parallel_for.
class Attention {
 public:
  // `pool` outlives it. Precondition: no call has more than max_tokens tokens in all.
  Attention(ThreadPool& pool, const AttentionShape& shape, int max_tokens);

  // out[t][n] = sum_j softmax_j(q[t][n] . key_j * head_dim^-1/2) value_j over the positions j
  // that the token sees, with the kv head n / group(); fp32 throughout, keys and values read as
  // stored (the span's own must have been appended).
  //   q, out  [tokens, heads, head_dim]; entries outside the spans are neither read nor written
  void run(std::span<const AttentionSpan> spans, const float* q, const KvView& kv, float* out);

  static std::int64_t scratch_bytes(int threads, const AttentionShape& shape, int max_tokens);

 private:
  // Some consecutive tokens of a span, all query heads of whose kv heads are worked on together.
  struct Tile {
    std::size_t span = 0;
    int first = 0;  // offset in the span
    int tokens = 0;
  };

  // One tile for one kv head.
  void run_tile(const AttentionSpan& span, const Tile& tile, int kv_head, const float* q,
                const KvView& kv, float* out, int thread);

  ThreadPool& pool_;
  AttentionShape shape_;
  std::vector<Tile> tiles_;       // of the current call; capacity max_tokens
  AlignedBuffer<float> scratch_;  // [threads, scratch_elements]
};

}  // namespace replayssm
