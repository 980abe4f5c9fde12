// One sequence of a small checkpoint, evaluated through Model::forward without an engine, with
// everything that the layers put out kept for comparison.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/sequence_memory.h"
#include "core/thread_pool.h"
#include "engine/device.h"
#include "model/model.h"
#include "ops/linear_ops.h"

namespace replayssm {

// Throws std::runtime_error with the message of any Error, so that a test stops there.
class ParitySequence {
 public:
  // `options.geometry` is the device's.
  ParitySequence(const std::filesystem::path& checkpoint, const ModelOptions& options,
                 DeviceKind device = DeviceKind::cpu, DType state_type = DType::f32,
                 int threads = 2);

  // Evaluate tokens after those before them, and return the logits of each, [tokens, vocab_size].
  std::vector<float> prefill(std::span<const TokenId> tokens);  // one chunk
  std::vector<float> decode(TokenId token);                     // one window

  // What the observer was told, of all steps one after the other: "layers.3.output", ...
  const std::map<std::string, std::vector<float>, std::less<>>& observed() const {
    return observed_;
  }

  // The state of a linear layer (its ordinal among those) with every committed token in it,
  // [value_heads, V, K]; leaves the sequence as it was. CPU only.
  std::vector<float> state(int linear_layer);

  const ModelConfig& config() const { return model_->config(); }

 private:
  std::vector<float> step(std::span<const TokenId> tokens, Phase phase);

  ThreadPool pool_;
  std::unique_ptr<Device> device_;
  LinearOps* ops_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<SequenceMemory> memory_;
  Residence sequence_;
  std::map<std::string, std::vector<float>, std::less<>> observed_;
};

}  // namespace replayssm
