// Launches of what token_choice.cuh does. All pointers are device memory; nothing waits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/result.h"
#include "model/cuda/decoder_buffers.h"
#include "model/cuda/token_choice.h"

namespace replayssm::cuda {

struct TokenChoiceArgs {
  float* logits = nullptr;  // [rows, stride]; those that a row changes are overwritten
  std::int64_t stride = 0;
  int vocabulary = 0;  // of each row, the first so many count
  int rows = 0;
  const RowChoice* choices = nullptr;  // [rows]
  BestToken* best_parts = nullptr;     // [rows, kBestParts], for the launches' own use
  ChoiceBins* bins = nullptr;          // [rows], zero before and after
  ChoiceList* lists = nullptr;         // [rows], of count zero before and after
  RowLogprobs* logprobs = nullptr;     // [rows], written where they are asked for
  // [rows] The best tokens of the logits as they are; the chosen ones afterwards, or kNotFinite, or
  // kNothingAllowed.
  int* chosen = nullptr;
};

// Which steps the rows need, any of them.
struct TokenChoiceSteps {
  bool logprobs = false;
  bool changes = false;  // of logits, or a mask
  bool draws = false;
  bool by_id = false;     // of the draws, what may be in the order of ids
  bool by_logit = false;  // and in that of logits
};

Status launch_token_choice(const TokenChoiceArgs& args, const TokenChoiceSteps& steps,
                           cudaStream_t stream);

// To be called once before the launches.
Status prepare_token_choice();

}  // namespace replayssm::cuda
