// A tiny model of the Qwen3.5 family with random weights, and sequences that run on it without an
// engine.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cache/sequence_memory.h"
#include "core/thread_pool.h"
#include "model/model.h"
#include "ops/linear_ops.h"

namespace replayssm {

ModelConfig tiny_config();

// Some tokens of one sequence in a step.
struct Part {
  int sequence = 0;
  std::vector<TokenId> tokens;
  Phase phase = Phase::decode;
};

// Owns a model with the weights of `seed` and memory for a few sequences. Any error throws
// std::runtime_error.
class TinyModel {
 public:
  TinyModel(const ModelOptions& options, int threads, int sequences = 4, unsigned seed = 1);

  // One step over the parts, all of whose tokens are accepted. Returns the logits of every token,
  // [tokens, vocab_rows].
  std::vector<float> step(const std::vector<Part>& parts);

  // The same without any allocation of its own: `logits` is [tokens, vocab_rows].
  void prepare(const std::vector<Part>& parts, Batch& batch);
  Status forward(const Batch& batch, std::span<float> logits);
  void advance(const Batch& batch, const std::vector<Part>& parts);

  Model& model() { return *model_; }
  SequenceMemory& memory() { return *memory_; }
  const Residence& sequence(int i) const { return sequences_[static_cast<std::size_t>(i)]; }

 private:
  ThreadPool pool_;
  std::unique_ptr<LinearOps> ops_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<SequenceMemory> memory_;
  std::vector<Residence> sequences_;
};

}  // namespace replayssm
