// The operations on recurrent state, implemented by every backend behind this one interface. The
// header states for each: mathematics, shapes and dtypes, domain, numeric criterion, effects and
// aliasing, workspace. The float64 reference backend decides what is right.
//
// Notation, per value head: state S [V, K] (a product S x contracts over K), k and q L2-normalised
// with q scaled by K^-1/2, a = exp(g), beta in (0, 1), i the position of a token.
//   step   d = beta (v - S diag(a) k)    o = S diag(a) q + (k.q) d    S' = S diag(a) + d k^T
//   log    S diag(a) x = S0 (A .* x) + sum_j d_j <k_j .* w_j, x>
// with S0 the checkpoint at depth L floor(i / L), j running over the records from there to i - 1 in
// ascending order, w_j = exp(sum of the gates of j+1 .. i) and A = exp(sum of the gates of all of
// them and of i): sums, or products of exponentials, of gates newest first; never exp of a sum > 0.
// Source: Yang et al., Gated Delta Networks (arXiv 2412.06464); Kimi Linear (arXiv 2510.26692).
//
// Common to all operations
//   Domain    finite inputs; g <= 0; L2 norms add 1e-6 to the sum of squares, under the root.
//   Rounding  d is computed, rounded to the ring's type, and from then on used as rounded; only the
//             token's own output uses the unrounded d. States are rounded once per folded block.
//   Null rows a row whose base is the null slot touches no slot and no ring; its outputs are zero.
//   Rows      a row's result depends on that row alone, never on batch size, neighbours, order of
//             the rows or thread count, and on positions only: any split of the same tokens into
//             windows and chunks gives the same bits.
//   Unread    ring rows outside [c, t), slots other than base, and base at c == 0 are not read;
//             whatever is there, NaN included, reaches no result.
//   Errors    arguments are checked before anything is written; an error changes nothing.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "core/bfloat16.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "ops/shape.h"
#include "ops/views.h"

namespace replayssm {

// Arguments of window_step, chunk_prefill and packed_step: one layer, some rows, their tokens.
struct StepArgs {
  HeadShape shape;
  FoldGeometry geometry;
  StateView states;
  RingView rings;  // not used by packed_step
  CursorView cursors;
  std::span<const RowTokens> rows;
  const float* qkv = nullptr;      // [tokens, shape.channels()], after convolution and SiLU
  const float* gate = nullptr;     // [tokens, value_heads, gate_width], log gate g
  const float* beta = nullptr;     // [tokens, value_heads]
  float* out = nullptr;            // [tokens, value_heads, V]; may not alias the inputs
  const bf16* qkv_bf16 = nullptr;  // instead of qkv where activation_type() is bf16
};

// One row of a fold: records [from, from + records) into the state at depth `from`.
struct FoldRow {
  RowIndex row;
  Depth from;               // depth of the source state; the source is not read at 0
  int records = 0;          // 0 <= records <= R
  SlotId source;            // null: a null row, nothing is touched
  SlotId destination;       // may equal source; null with `buffer` set
  std::span<float> buffer;  // instead of a destination slot: layers x [value_heads, V, K]
};

struct FoldArgs {
  HeadShape shape;
  FoldGeometry geometry;
  std::span<const StateView> states;  // one per linear layer
  std::span<const RingView> rings;    // one per linear layer
  std::span<const FoldRow> rows;
};

enum class Recurrence { replay, packed };

// A record's gate as a ring keeps it: g <= 0, or exp(g) in [0, 1], whose products are the decays.
enum class GateForm { log, decay };

// Moves t, c and base of every row once per step, after the last layer.
struct AdvanceArgs {
  FoldGeometry geometry;
  Recurrence recurrence = Recurrence::replay;
  CursorView cursors;
  std::span<const RowTokens> rows;  // windows and chunks, told apart by their phase
  std::span<const int> accepted;    // m, one per entry of `rows`: 0 <= m <= tokens; chunks: tokens
};

// Arguments of conv_window and conv_chunk.
struct ConvArgs {
  FoldGeometry geometry;
  Recurrence recurrence = Recurrence::replay;  // packed: nothing folds, tails are left alone
  ConvRingView rings;
  ConvTailView tails;
  CursorView cursors;
  std::span<const RowTokens> rows;
  const float* weight = nullptr;  // [channels, 4]; tap 3 meets the current token
  const float* input = nullptr;   // [tokens, channels]
  float* out = nullptr;           // [tokens, channels]; may equal input
  DType round_to = DType::f32;    // bf16: outputs are rounded to bf16 values
  // Where activation_type() is bf16: instead of input, and, unless null, instead of out, apart from
  // the input.
  const bf16* input_bf16 = nullptr;
  bf16* out_bf16 = nullptr;
};

// Arguments of gates: the projections of one layer.
struct GateArgs {
  HeadShape shape;
  int tokens = 0;
  const float* a = nullptr;        // [tokens, value_heads, gate_width]
  const float* b = nullptr;        // [tokens, value_heads]
  const float* a_log = nullptr;    // [value_heads]
  const float* dt_bias = nullptr;  // [value_heads, gate_width]
  // KDA only: where it is < 0, g = lower_bound * sigmoid(exp(a_log) * (a + dt_bias)).
  float lower_bound = 0;
  float* gate = nullptr;  // [tokens, value_heads, gate_width]
  float* beta = nullptr;  // [tokens, value_heads]
};

class LinearOps {
 public:
  virtual ~LinearOps() = default;

  // "reference", "cpu", "cuda", with the instruction set where there is a choice.
  virtual std::string_view name() const = 0;

  // Gate and beta: g = -exp(a_log) * softplus(a + dt_bias), softplus(x) = x for x > 20;
  // beta = sigmoid(b). Criterion: relative 1e-6 against float64 (fp32 exponentials).
  virtual Status gates(const GateArgs& args) = 0;

  // The plain recurrence: reads the state of depth t from `base` (nothing at t == 0), evaluates the
  // row's tokens in order, writes the state to `home` once. The state is rounded to its type after
  // each token. Does not use rings. Criterion: output error against float64 below 1e-6 for fp32.
  virtual Status packed_step(const StepArgs& args) = 0;

  // Evaluates tokens <= T_max at positions t .. t + tokens - 1 and appends their records. Where
  // t - c >= L it first folds the block [c, c + L) of `base` into `home`. Folds that a window needs
  // beyond that stay in scratch. Moves no cursor. Criterion: as packed_step times 4.
  virtual Status window_step(const StepArgs& args) = 0;

  // Evaluates any number of tokens; folds every block that ends before t + tokens into `home`,
  // rounding at each block as decode would, and appends the records that remain. Same values, bit
  // for bit, as window_step over the same tokens.
  virtual Status chunk_prefill(const StepArgs& args) = 0;

  // S' = S diag(A) + sum_j d_j (k_j .* w_j)^T over the given records in ascending order, all
  // layers.
  virtual Status fold(const FoldArgs& args) = 0;

  // c += L * blocks; where blocks > 0, base = home; t += m. blocks is 1 for a window with
  // t - c >= L; for a chunk floor((t + n - 1) / L) - c / L. Packed: c = t += m, and base = home
  // where m > 0. Null rows stay.
  virtual Status advance(const AdvanceArgs& args) = 0;

  // Causal depthwise convolution of width 4 and SiLU:
  //   out[i][ch] = silu(sum_{tap=0..3} weight[ch][tap] * x[i - 3 + tap][ch]), zeros before
  // position 0. Inputs before the row's tokens come from the conv ring; the row's inputs are
  // appended to it. In a step whose window folds ([t - c >= L], replay), the inputs
  // c+L-3 .. c+L-1 are first copied from the ring to the tail of `home`. Null rows: zeros.
  virtual Status conv_window(const ConvArgs& args) = 0;

  // The same for a chunk of any length: the tail of `home` gets the inputs before the new
  // checkpoint if the chunk folds at least one block.
  virtual Status conv_chunk(const ConvArgs& args) = 0;

  // One slot's state of one layer, to and from the layout of other engines and of files:
  // [value_heads, V, K] in fp32 (exact for fp32 and bf16 states).
  virtual Status export_state(const HeadShape& shape, const StateView& states, SlotId slot,
                              std::span<float> out) const = 0;
  virtual Status import_state(const HeadShape& shape, const StateView& states, SlotId slot,
                              std::span<const float> in) const = 0;

  // Element type that this backend keeps states in when fp32 is asked for (f64 on the reference).
  virtual DType state_type_for(DType wanted) const { return wanted; }

  // Element type of q, k and v in StepArgs, and of the keys in the rings where it is bf16.
  virtual DType activation_type() const { return DType::f32; }

  // What this backend keeps in RingView::gates.
  virtual GateForm gate_form() const { return GateForm::log; }
};

// float64, plain loops; states and corrections are f64. Uses no threads.
std::unique_ptr<LinearOps> make_reference_ops();

// On the CPU one task owns a key head and finishes its reads before the first append, so rings may
// be the smaller ones (tests/ops/exactness_test.cpp).
inline constexpr RingAccess kCpuRingAccess = RingAccess::staged;

// The CPU backend on the best instruction set that this machine has. `pool` outlives it.
std::unique_ptr<LinearOps> make_cpu_ops(ThreadPool& pool);

}  // namespace replayssm
