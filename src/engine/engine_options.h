// What decides which engine is made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "cache/poison.h"
#include "core/dtype.h"
#include "engine/device.h"
#include "model/model.h"
#include "ops/linear_ops.h"
#include "spec/speculation.h"

namespace replayssm {

struct EngineOptions {
  std::filesystem::path model_path;
  LoadFormat load_format = LoadFormat::checkpoint;
  DeviceKind device = DeviceKind::cpu;
  std::optional<DType> activations;  // f32 or bf16; empty: the type the weights are stored in
  DType state_type = DType::f32;
  Recurrence recurrence = Recurrence::replay;
  int fold_block = 16;
  int window_max = 1;  // T_max; with a speculative algorithm, what follows from it
  SpeculationOptions speculation;
  bool deterministic = false;
  int threads = 0;      // 0: one for each core
  bool graphs = true;   // cuda: steps that come again are captured and replayed
  bool overlap = true;  // cuda: a scheduler launches the next step while one runs

  std::int64_t memory_budget = 0;  // bytes; 0: memory_fraction of what the device has free
  double memory_fraction = 1;
  int max_running_requests = 1;  // 0: as many as fit
  int context_length = 0;        // tokens of the longest request; 0: the model's
  int page_tokens = 16;
  int step_tokens = 256;          // the most tokens of a step, and so of a prompt chunk
  int logit_rows = 0;             // the most rows of logits of a step; 0: one window a request
  int prompt_logit_rows = 0;      // and so many more for log-probabilities of prompts
  int slots_beyond_requests = 0;  // slots for shared checkpoints, beyond one a request
  int kept_sequences_least = 0;   // room for a prefix cache, see MemoryNeeds; 0: none
  Poison poison = Poison::off;
};

}  // namespace replayssm
