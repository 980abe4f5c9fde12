// The compute kernels behind the CPU operations. Each is compiled once for every instruction set
// and dispatched at run time; on instruction sets with fused multiply-add their bits are the same,
// since sums run over keys in a fixed order and values lie in lanes.
#pragma once

#include <cstdint>

#include "ops/check_arguments.h"
#include "ops/cpu/step_scratch.h"

namespace replayssm::cpu {

// Some value heads of one key head of one row of a step.
struct StepTask {
  const StepArgs* args = nullptr;
  StepKind kind = StepKind::window;
  const RowTokens* row = nullptr;
  int key_head = 0;
  int first_value_head = 0;
  int value_heads = 0;
  bool owns_keys = false;  // all value heads of the key head: appends the keys as well
  StepScratch* scratch = nullptr;
  const StepTask* next = nullptr;  // what this thread will do after it, if that is known
};

// Folds, evaluates and appends the value heads' corrections and decays. Reads, but does not write
// unless the task owns them, the ring's keys: they are shared by the key head's value heads.
void step_value_heads(const StepTask& task);

// Appends the keys of a key head that several tasks shared, after all of them are done.
void append_keys(const StepTask& task);

// One value head of one layer of a fold.
struct FoldTask {
  const FoldArgs* args = nullptr;
  const FoldRow* row = nullptr;
  int layer = 0;
  int value_head = 0;
  StepScratch* scratch = nullptr;
};
void fold_value_head(const FoldTask& task);

// The channels that one convolution task takes.
inline constexpr int kConvChannels = 128;

// Channels [first_channel, first_channel + channels) of one row of a convolution.
struct ConvTask {
  const ConvArgs* args = nullptr;
  const RowTokens* row = nullptr;
  bool chunk = false;
  int first_channel = 0;
  int channels = 0;
};
void convolve_channels(const ConvTask& task);

// Tokens [first, first + count).
void gate_tokens(const GateArgs& args, int first, int count);

// The instruction set that the kernels are dispatched to, as Highway numbers it.
std::int64_t chosen_target();

}  // namespace replayssm::cpu
