// From a model's configuration to the numbers that the memory plan works with. Needs no weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cache/sequence_layout.h"
#include "core/result.h"
#include "engine/engine_options.h"
#include "engine/step_limits.h"
#include "model/block_draft_config.h"
#include "model/config.h"
#include "model/model.h"
#include "model/weights.h"
#include "replay/memory_plan.h"

namespace replayssm {

// `state_type`: of states in slots; corrections in rings follow it. `drafter`: a block drafter, or
// null.
SequenceLayout sequence_layout(const ModelConfig& config, const ModelOptions& options,
                               DType state_type, int page_tokens,
                               const BlockDraftConfig* drafter = nullptr);

// Fills slot, rings, conv rings and KV; the caller adds budget, weights, workspace and requests.
MemoryNeeds sequence_needs(const SequenceLayout& layout);

// Bytes of the tensors that config calls for, if every matrix is stored in config.weight_type and
// norms, gates and convolution taps are kept as float32. `with_draft_head` adds the mtp.* head.
// With Float8::kept, and where the configuration has float8 blocks: if every matrix of a layer but
// the projections of beta and the log gate is stored so.
std::int64_t planned_weight_bytes(const ModelConfig& config, bool with_draft_head,
                                  Float8 float8 = Float8::dequantised);

// How a device has float8 weights; a GPU as Hopper does.
constexpr Float8 float8_on(DeviceKind device) {
  return device == DeviceKind::cuda ? Float8::kept : Float8::dequantised;
}

// The same for a block drafter's tensors.
std::int64_t planned_weight_bytes(const BlockDraftConfig& drafter);

// What a model is computed with: what is asked for, or the type of its weights. float16 weights are
// computed with in float32, because half has too few exponent bits for activations. A GPU computes
// in bf16.
DType activation_type(const EngineOptions& options, const ModelConfig& config);

// The runner's buffer of logits.
std::int64_t logits_bytes(const ModelConfig& config, int logit_rows);

// The options with window_max as the speculative algorithm and its drafter have it; refused as
// plan_speculation() and load_block_draft_config(). `note`: one line if windows are cut; may be
// null.
Result<EngineOptions> resolve_speculation(EngineOptions options, std::string* note = nullptr);

// The block drafter that the options ask for; empty with other algorithms.
Result<std::optional<BlockDraftConfig>> load_drafter_config(const EngineOptions& options,
                                                            const ModelConfig& target);

// The most requests that are planned for where their number is not given: a step has room for a
// window of each.
int max_useful_requests(const EngineOptions& options);

// Whether the model can have the drafter that is asked for; refused by flag.
Status check_drafter(const EngineOptions& options, const ModelConfig& config);

// Whether the device's model is built for these options; refused by flag.
Status check_device(const EngineOptions& options);

// Whether a step has room for a window of every running request; refused by flag.
Status check_step_room(const EngineOptions& options);

// What a drafter needs beside its weights and its part of the pages: the hidden states that are
// kept for it, its buffers. `block`: the block drafter, or null.
std::int64_t drafter_bytes(const EngineOptions& options, const ModelConfig& config,
                           const ModelOptions& model_options, const BlockDraftConfig* block,
                           int threads, int rows);

struct SequencePlan {
  MemoryPlan memory;
  int context_length = 0;  // tokens of the longest request
};

// plan_memory() for the context that needs.context_length asks for. Where it is 0: for the longest
// context that fits, at most `model_context` and, where it must be less, a multiple of 1024;
// refused below min(model_context, 2048).
Result<SequencePlan> plan_sequences(MemoryNeeds needs, int model_context);

// The sizes of a step, and with them of workspace and logits, that options ask for. Where
// max_running_requests is 0, those of as many requests as could be planned.
StepLimits step_limits(const EngineOptions& options);

// The same as a model is made for.
ModelSizes model_sizes(const EngineOptions& options);

// Whether the drafter computes on the host, whatever the device: then it is not in the device's
// plan, and the target's embedding and head stay on the host, too.
bool drafts_on_host(const EngineOptions& options);

// The bytes of weights: the model's, and those of a drafter that has its own.
struct WeightBytes {
  std::int64_t model = 0;
  std::int64_t drafter = 0;
};

// The plan of an engine with these options, resolved: what Engine::create() allocates. `threads` as
// the engine's; `block`: its block drafter, or null. A memory budget of 0 is what the machine has.
// Refused as check_drafter() and plan_sequences().
Result<SequencePlan> plan_engine(const EngineOptions& options, const ModelConfig& config,
                                 const ModelOptions& model_options, const SequenceLayout& layout,
                                 const WeightBytes& weights, const BlockDraftConfig* block,
                                 int threads);

}  // namespace replayssm
