// Attention of a step over pages of keys and values, by FlashInfer's kernels: decode, windows and
// prompt chunks alike, causal. Which instances are built: head_dim 64, 128 and 256 (with
// REPLAYSSM_CUDA_ONE_INSTANCE 256 alone).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>

#include "core/bfloat16.h"
#include "core/result.h"
#include "model/config.h"

namespace replayssm::cuda {

// Which pages the rows of a step read; row r owns queries [query_start[r], query_start[r + 1]),
// the last of the positions in its pages. Host arrays are read by plan(), device arrays by run().
struct AttentionRows {
  std::span<const int> query_start;  // host, [rows + 1], from 0
  std::span<const int> page_start;   // host, [rows + 1], from 0: a row's part of `pages`
  const int* device_query_start = nullptr;
  const int* device_page_start = nullptr;
  const int* pages = nullptr;             // device, [page_start.back()] page ids
  const int* last_page_tokens = nullptr;  // device, [rows] positions in a row's last page, 1 ..
};

struct AttentionOrder {
  // A query's result depends on nothing but itself and its own keys and values, bit for bit: always
  // the same tile, and one block for all positions.
  bool fixed = false;
  // Positions before it are not seen; what lies there must be finite. Above 0 only with `fixed`.
  int first_position = 0;
};

// Owns its workspace, on the device and in pinned host memory. One thread, one stream.
class PagedAttention {
 public:
  // `rows`: the most of a step. Error: a head dimension that is not built; out of memory.
  static Result<PagedAttention> make(const AttentionShape& shape, int page_tokens, int rows,
                                     const AttentionOrder& order);
  PagedAttention(PagedAttention&&) noexcept;
  PagedAttention& operator=(PagedAttention&&) noexcept;
  ~PagedAttention();

  // Once a step, before its attention layers: how the step's work is cut into blocks. Copies the
  // cut to the device. With `graph` the cut has one of two sizes for every step of as many tokens
  // and rows, as long as either all or not all rows have equally many queries: by the rows'
  // lengths, whole rows or parts of them. A captured run() serves all steps with its cut_shape().
  Status plan(const AttentionRows& rows, bool graph, cudaStream_t stream);

  // What a captured run() bakes in of the newest plan.
  std::int64_t cut_shape() const;

  // out[t][n] = sum_j softmax_j(q[t][n] . key_j * head_dim^-1/2) value_j over the positions up to
  // the token's own, with the kv head n / group().
  //   q, out          [tokens, heads, head_dim]
  //   keys, values    [pages, page_tokens, kv_heads, head_dim]
  Status run(const AttentionRows& rows, const bf16* q, const bf16* keys, const bf16* values,
             bf16* out, cudaStream_t stream);

 private:
  struct Implementation;
  explicit PagedAttention(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace replayssm::cuda
