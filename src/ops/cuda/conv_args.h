// What conv_window and conv_chunk are launched with: device memory, and tasks cut on the host.
//
// Layouts (elements, last index contiguous; channels is a multiple of 4, memory 16-byte aligned):
//   ring    [rows][conv_rows][channels]    bf16
//   tail    [slots][3][channels]           bf16, slots tail_stride apart
//   weight  [channels][4]                  fp32; tap 3 meets the current token; no launch's result:
//                                          it is always read early
//   input   [tokens][channels]             bf16, tokens input_stride apart
//   out     [tokens][channels]             bf16, or fp32 where out_f32 is set; not the input
#pragma once

#include <cstdint>
#include <vector>

#include "core/bfloat16.h"
#include "core/result.h"
#include "ops/linear_ops.h"

namespace replayssm::cuda {

inline constexpr int kConvTaskTokens = 16;  // most of one task
inline constexpr int kConvChannels = 4;     // of one thread

// Some tokens of one row of a step. The one from offset 0 on also moves the row's ring and tail.
struct ConvTask {
  int row;
  int first_token;  // of the row, in every per-token array
  int tokens;       // of the row
  int offset;       // of the task's first token; it ends kConvTaskTokens later or with the row's
};

// Log gates and betas of gated delta layers (see GateArgs), of the same tokens as the
// convolution's, from where a product left their projections in bf16.
struct GateProjections {
  const bf16* a = nullptr;  // of token 0; tokens lie `stride` apart, HV values each
  const bf16* b = nullptr;
  int64_t stride = 0;
  const float* a_log = nullptr;    // [HV]
  const float* dt_bias = nullptr;  // [HV]
  float* gate = nullptr;           // [tokens][HV]; null: no gates
  float* beta = nullptr;           // [tokens][HV]
  int tokens = 0;
  int value_heads = 0;
};

struct ConvLaunch {
  const ConvTask* tasks = nullptr;  // [task_count]
  int task_count = 0;
  const int* committed = nullptr;   // [rows] t
  const int* checkpoint = nullptr;  // [rows] c
  const int* base = nullptr;        // [rows] negative: a null row
  const int* home = nullptr;        // [rows]
  bf16* ring = nullptr;
  bf16* tail = nullptr;
  int64_t tail_stride = 0;
  const float* weight = nullptr;
  const bf16* input = nullptr;
  int64_t input_stride = 0;  // elements from one token to the next, a multiple of 4
  void* out = nullptr;
  int out_f32 = 0;
  int round_out = 0;  // fp32 outputs are rounded to bf16 values
  int channels = 0;
  int conv_rows = 0;
  int fold_block = 0;
  int packed = 0;     // nothing folds
  int chunk = 0;      // rows fold as chunks do, see blocks_folded
  int one_token = 0;  // rows have one token each: fewer registers, more blocks beside each other
  // Tasks, cursors and rings were written by no launch that may still run when the launch before
  // this one has begun to let it in: they are read early. See StepArgs::settled.
  int settled = 0;
  GateProjections gates;
};

// Cuts rows into tasks. A window is one task, so its table has as many entries as the batch.
std::vector<ConvTask> conv_tasks(std::span<const RowTokens> rows);

// What the kernel asks beyond what every backend does: bf16 rings, a multiple of 4 channels,
// aligned memory, out apart from the input.
Status conv_fits(const ConvArgs& args);

// The launch of arguments that fit, over tasks in device memory.
ConvLaunch conv_launch(const ConvArgs& args, bool chunk, const ConvTask* tasks, int task_count);

}  // namespace replayssm::cuda
