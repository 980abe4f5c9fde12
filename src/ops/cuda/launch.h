// Starts the operations on a stream. Plans come from step_plan.h; arguments are device memory that
// outlives the launch. Nothing here waits for the device, so all of it may be captured in a graph.
//
// packed_step  d = beta (v - S diag(a) k), o = S diag(a) q + (k.q) d, S' = S diag(a) + d k^T: reads
//              the state of depth t from `base` (nothing at t == 0), writes `home`. Rings unused.
// window_step  up to window_max tokens a row at positions from t on, from the checkpoint at c and
//              the records c .. t-1; first folds the block [c, c + L) of `base` into `home` where
//              t - c >= L, and computes from the folded, rounded state. A window that crosses a
//              multiple of L is evaluated in two pieces, the fold between them stays on chip.
//              Appends the tokens' records. A token's bits do not depend on the window it is in.
//              Requires t - c <= L + window_max - 1, c a multiple of L. Moves no cursor.
// chunk_prefill  any number of tokens a row, with the bits of windows; folds every block that ends
//              before the last token into `home` and appends the records of the rest. The ring may
//              be as small as what is pending. Two launches.
// fold         records [from, from + records) into the state of depth `from`, all layers.
// advance      c += L where t - c >= L, and base = home; then t += m. Chunks: see AdvanceArgs.
// gates        log gate and beta of every token from their projections.
// conv         causal convolution of width 4 and SiLU of windows or chunks: see LinearOps.
// widen        bf16 numbers as fp32.
// Null rows (base or source negative) touch no slot and no ring; their outputs are zero.
// Criterion: fp32 states 1e-6 relative to float64; bf16 states round once a fold.
#pragma once

#include <cuda_runtime_api.h>

#include "core/result.h"
#include "ops/cuda/conv_args.h"
#include "ops/cuda/step_args.h"
#include "ops/cuda/step_plan.h"

namespace replayssm::cuda {

// The limits of the current device, for plans.
Result<DeviceLimits> device_limits();

// Error: the kernels were not compiled for the current device.
Status kernels_fit_device();

Status launch_window_step(const StepPlan& plan, const StepArgs& args, cudaStream_t stream);
Status launch_chunk_prefill(const StepPlan& plan, const StepArgs& args, cudaStream_t stream);
Status launch_packed_step(const StepPlan& plan, const StepArgs& args, cudaStream_t stream);
Status launch_fold(const StepPlan& plan, const FoldArgs& args, cudaStream_t stream);
Status launch_advance(const AdvanceArgs& args, cudaStream_t stream);
Status launch_gates(const GateArgs& args, cudaStream_t stream);
Status launch_conv(const ConvLaunch& args, cudaStream_t stream);
Status launch_widen(const bf16* from, float* to, int64_t count, cudaStream_t stream);

}  // namespace replayssm::cuda
