// The tokens that steps choose on the device: what the host asks on its way there, and what was
// chosen on its way back, for up to two steps at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "model/cuda/decoder_buffers.h"
#include "model/cuda/token_choice_kernels.h"
#include "model/token_choice.h"
#include "ops/cuda/device_memory.h"
#include "ops/cuda/pinned_buffer.h"

namespace replayssm::cuda {

// Owns device and pinned memory. One thread, one stream.
class TokenChoices {
 public:
  // `rows`, `logit_rows`: the most of a step.
  static Result<TokenChoices> make(int rows, int logit_rows, int vocabulary, cudaStream_t stream);

  // Behind the launches that make the logits and their best tokens: chooses, and copies what was
  // chosen to the host. `args` says where logits, best_parts and chosen are. Precondition: less
  // than two steps are launched and not taken.
  Status launch(std::span<const TokenChoice> choices, TokenChoiceArgs args);
  // Waits for the oldest such step. Valid until the second launch() from now.
  Result<std::span<const ChosenToken>> take();
  int launched() const { return launched_; }
  void forget_launched() { launched_ = 0; }

 private:
  // A step's numbers on the host.
  struct Slot {
    PinnedBuffer table;     // what is sent, grows
    PinnedBuffer tokens;    // [logit_rows] int
    PinnedBuffer logprobs;  // [logit_rows] RowLogprobs
    Event done;
    int rows = 0;
    std::vector<int> alternatives;  // [rows], -1: no log-probabilities
    std::vector<ChosenToken> chosen;
  };
  Status launch_parts(Slot& slot, std::span<const TokenChoice> choices,
                      const TokenChoiceSteps& steps, TokenChoiceArgs args);

  int vocabulary_ = 0;
  cudaStream_t stream_ = nullptr;
  DeviceBuffer table_;     // RowChoice of every row, changes of logits, masks
  DeviceBuffer bins_;      // [logit_rows] ChoiceBins
  DeviceBuffer lists_;     // [logit_rows] ChoiceList
  DeviceBuffer logprobs_;  // [logit_rows] RowLogprobs
  std::array<Slot, 2> slots_;
  int newest_ = 0;  // of slots_
  int launched_ = 0;
};

}  // namespace replayssm::cuda
