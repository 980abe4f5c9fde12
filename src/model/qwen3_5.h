// The dense models of the Qwen3.5 family (model types qwen3_5 and qwen3_5_text): gated delta rule
// and gated attention layers, each followed by a SwiGLU MLP, on the CPU.
#pragma once

#include <cstdint>
#include <memory>

#include "model/model.h"
#include "model/weights.h"

namespace replayssm {

// `weights` are those of `config` (load_weights, or a test's own). `pool` and `ops` outlive the
// model. Allocates the workspace for options.max_step_tokens. Refuses, by name, options that the
// family or the CPU does not have.
Result<std::unique_ptr<Model>> make_qwen3_5(const ModelConfig& config, Weights weights,
                                            const ModelOptions& options, ThreadPool& pool,
                                            LinearOps& ops);

// Scratch of a step of so many tokens on so many threads: Model::workspace_bytes without a model.
std::int64_t qwen3_5_workspace_bytes(const ModelConfig& config, const ModelOptions& options,
                                     int threads, int tokens);

}  // namespace replayssm
