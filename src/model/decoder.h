// Decoders of pre-norm layers, each a mixer (gated delta rule, Kimi Delta Attention or gated
// attention) and a SwiGLU MLP, on the CPU. The mixers are in a file for each family.
#pragma once

#include <cstdint>
#include <memory>

#include "model/model.h"
#include "model/weights.h"

namespace replayssm {

// `weights` are those of `config` (load_weights, or a test's own). `pool` and `ops` outlive the
// model. Allocates the workspace for options.max_step_tokens. Refuses, by name, options that the
// CPU does not have.
Result<std::unique_ptr<Model>> make_decoder(const ModelConfig& config, Weights weights,
                                            const ModelOptions& options, ThreadPool& pool,
                                            LinearOps& ops);

// Scratch of a step of so many tokens on so many threads: Model::workspace_bytes without a model.
std::int64_t decoder_workspace_bytes(const ModelConfig& config, const ModelOptions& options,
                                     int threads, int tokens);

}  // namespace replayssm
