// The numbers of one step that the kernels read from device memory: written by the host in one
// copy, laid out by the step's shape alone, so that a captured graph finds them again.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <span>
#include <vector>

#include "core/result.h"
#include "model/cuda/decoder_buffers.h"
#include "model/cuda/paged_attention.h"
#include "model/model.h"
#include "ops/cuda/conv_args.h"
#include "ops/cuda/device_memory.h"
#include "ops/cuda/pinned_buffer.h"

namespace replayssm::cuda {

// Rows of one kind, windows or chunks, as the operations on states take them.
struct StepRows {
  int count = 0;
  const int* row = nullptr;          // [count]
  const int* first_token = nullptr;  // [count]
  const int* tokens = nullptr;       // [count]
  const ConvTask* tasks = nullptr;   // [task_count]
  int task_count = 0;
};

class StepTables {
 public:
  // With room for any step of these sizes.
  static Result<StepTables> make(const StepSizes& sizes);

  // Sorts the batch and copies its numbers to the device, on `stream`. Waits until the copy of the
  // call before the one before has happened.
  Status write(const Batch& batch, int page_tokens, cudaStream_t stream);

  int token_count() const { return token_count_; }
  int logit_rows() const { return logit_rows_; }
  // [tokens] ids, -1 in null rows, or token_chosen_in()
  const int* tokens() const { return tokens_; }
  const int* positions() const { return positions_; }        // [tokens]
  const int* places() const { return places_; }              // [tokens], see HeadArgs
  const int* logit_tokens() const { return logit_tokens_; }  // [logit_rows] indices of tokens
  const StepRows& windows() const { return windows_; }
  const StepRows& chunks() const { return chunks_; }
  const AttentionRows& attention() const { return attention_; }

 private:
  // On the host, for one call of two.
  struct Written {
    PinnedBuffer words;
    Event copied;
  };
  const int* section(std::span<const int> words);
  StepRows rows_of(std::span<const RowTokens> rows);

  std::array<Written, 2> written_;
  std::size_t newest_ = 0;  // of these
  DeviceBuffer device_;
  std::size_t used_ = 0;  // words of the newest

  int token_count_ = 0;
  int logit_rows_ = 0;
  const int* tokens_ = nullptr;
  const int* positions_ = nullptr;
  const int* places_ = nullptr;
  const int* logit_tokens_ = nullptr;
  StepRows windows_;
  StepRows chunks_;
  AttentionRows attention_;
  std::vector<int> query_start_;
  std::vector<int> page_start_;
};

}  // namespace replayssm::cuda
