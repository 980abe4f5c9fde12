// What the CUDA operations are launched with. All pointers are device memory; every number that
// changes from step to step is read from there, so a captured graph serves all steps.
//
// Layouts (elements, last index contiguous):
//   state        [slots][HV][V][K]            fp32 or bf16, slots state_stride apart (64-bit)
//   keys         [rows][H][R][K]              bf16, the activation itself
//   key_scales   [rows][H][R]                 fp32, inverse L2 norm of the key
//   corrections  [rows][HV][R][V]             d, in the state's type
//   gates        [rows][HV][R][gate width]    fp32 decays exp(g), width 1 (GDN) or K (KDA)
//   qkv          [tokens][2 H K + HV V]       bf16, q | k | v
//   gate, beta   [tokens][HV][gate width], [tokens][HV]  fp32
//   out          [tokens][HV][V]              bf16, or fp32 where out_f32 is set
// qkv, keys, corrections, gates and states are 16-byte aligned, and so are their strides.
#pragma once

#include <cstdint>

#include "core/bfloat16.h"

namespace replayssm::cuda {

// The batch of a step. `row` is indexed by entry, the cursors by row (as CursorView).
struct BatchView {
  const int* row = nullptr;         // [entries]
  const int* committed = nullptr;   // [rows] t
  const int* checkpoint = nullptr;  // [rows] c
  const int* base = nullptr;        // [rows] slot read from; negative: a null row
  const int* home = nullptr;        // [rows] slot that a fold is written to
  int entries = 0;
  // Windows of several tokens: entry e owns tokens first_token[e] .. first_token[e] + tokens[e] - 1
  // of every per-token array, 1 to the window of the plan, in chunks any number. Null: one token
  // each, token e; not in chunks.
  const int* first_token = nullptr;  // [entries]
  const int* tokens = nullptr;       // [entries]
};

struct StateMemory {
  void* data = nullptr;
  int64_t slot_stride = 0;  // elements
};

struct RingMemory {
  bf16* keys = nullptr;
  float* key_scales = nullptr;
  void* corrections = nullptr;
  float* gates = nullptr;
};

// One layer. packed_step takes one token a row.
struct StepArgs {
  BatchView batch;
  StateMemory state;
  RingMemory ring;  // not used by packed_step
  const bf16* qkv = nullptr;
  int64_t token_stride = 0;  // elements from one token's qkv to the next, a multiple of 8
  // Log gate and beta; or, where a_log is set, the projections a and b that they come from.
  const float* gate = nullptr;
  const float* beta = nullptr;
  const float* a_log = nullptr;    // [HV]
  const float* dt_bias = nullptr;  // [HV][gate width]
  float lower_bound = 0;           // see log_gate
  void* out = nullptr;
  int key_heads = 0;
  int value_heads = 0;
  int ring_rows = 0;  // R, a power of two
  int fold_block = 0;
  float query_scale = 0;  // K^-1/2
  int out_f32 = 0;
  // Nonzero: nothing but qkv, gate and beta is written by the previous launch of the stream, or by
  // one that may still run when the previous launch lets this one start. Then rows, cursors, states
  // and records are fetched before the previous launch has ended, where the plan allows overlap.
  int settled = 0;
};

// One linear layer of a fold.
struct FoldLayer {
  StateMemory state;
  RingMemory ring;
};

// Records [from, from + records) of each entry's row, folded into the state of depth `from`.
struct FoldArgs {
  const FoldLayer* layers = nullptr;  // [layer_count], device memory
  int layer_count = 0;
  int entries = 0;
  const int* row = nullptr;          // [entries]
  const int* from = nullptr;         // [entries]; the source is not read at 0
  const int* records = nullptr;      // [entries], 0 .. the plan's record limit
  const int* source = nullptr;       // [entries]; negative: a null row, nothing is touched
  const int* destination = nullptr;  // [entries] slot; negative: `buffer` is written instead
  void* const* buffer = nullptr;  // [entries] [layer_count][HV][V][K] in the state's type, or null
  int key_heads = 0;
  int value_heads = 0;
  int ring_rows = 0;
};

// Moves t, c and base of every entry's row, once per step.
struct AdvanceArgs {
  const int* row = nullptr;       // [entries]
  const int* accepted = nullptr;  // [entries] m
  int* committed = nullptr;       // [rows]
  int* checkpoint = nullptr;      // [rows]
  int* base = nullptr;            // [rows]
  const int* home = nullptr;      // [rows]
  int entries = 0;
  int fold_block = 0;
  int packed = 0;  // the plain recurrence: c = t, base = home where m > 0
  // [entries] tokens of a chunk, which folds every block that ends before its end; 0: a window,
  // which folds one block where t - c >= L. Null: windows only.
  const int* chunk = nullptr;
};

// Gate and beta from their projections, see log_gate and beta_of.
struct GateArgs {
  const float* a = nullptr;        // [tokens][HV][gate width]
  const float* b = nullptr;        // [tokens][HV]
  const float* a_log = nullptr;    // [HV]
  const float* dt_bias = nullptr;  // [HV][gate width]
  float lower_bound = 0;
  float* gate = nullptr;  // [tokens][HV][gate width]
  float* beta = nullptr;  // [tokens][HV]
  int tokens = 0;
  int value_heads = 0;
  int gate_width = 1;
};

}  // namespace replayssm::cuda
