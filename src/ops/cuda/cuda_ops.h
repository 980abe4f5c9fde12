// The CUDA backend behind the interface of all backends.
//
// Memory. Every pointer of a view or of an operation's arguments is device memory: states, rings,
// cursors, activations, gates, outputs, and a FoldRow's buffer. What the arguments hold as spans of
// records (rows, fold rows, accepted counts) is host memory and is read before the call returns; it
// travels to the device as kernel parameters. export_state and import_state take host memory and
// wait for the stream; nothing else waits, so results are there when the stream has come so far.
//
// Formats. States fp32 or bf16, corrections in the state's type, keys and activations bf16
// (StepArgs::qkv_bf16), gates as logarithms, in rings as decays (GateForm::decay), outputs fp32.
// Rings have more rows than the fold block (RingAccess::shared), because a block of the grid
// appends while another reads. Cursor values are not checked: they live on the device. Two rows of
// a batch may share a base as everywhere; that none of them folds into it is the caller's to see
// to.
//
// Built so far: gates, window_step, packed_step for one token a row, fold, advance, export_state
// and import_state. Everything else, and a shape that is not there, is answered with an Error that
// names it.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "ops/linear_ops.h"

namespace replayssm::cuda {

// Operations on `stream`, which outlives them; calls come from one thread at a time. A call may be
// captured in a graph; the graph then keeps the rows that it was captured with, while cursors,
// states and activations are read anew by every replay. (A graph for changing rows is built on
// launch.h, whose rows are device memory.)
// Error: no GPU, or one that the kernels are not built for.
Result<std::unique_ptr<LinearOps>> make_cuda_ops(cudaStream_t stream);

}  // namespace replayssm::cuda
