// The causal convolution of width 4 and SiLU for eight channels of one task: a thread's work. It
// streams its tokens and keeps the three inputs before the next one in registers.
#pragma once

#include "ops/cuda/advance.cuh"
#include "ops/cuda/conv_args.h"
#include "ops/cuda/numbers.cuh"

namespace replayssm::cuda {

// One token's eight channels.
struct Octet {
  float x[kConvChannels];
};

__device__ __forceinline__ Octet widen(const uint4& u) {
  return {{low_half(u.x), high_half(u.x), low_half(u.y), high_half(u.y), low_half(u.z),
           high_half(u.z), low_half(u.w), high_half(u.w)}};
}
__device__ __forceinline__ uint4 narrow(const Octet& y) {
  return {ptx::pack_bf16(y.x[0], y.x[1]), ptx::pack_bf16(y.x[2], y.x[3]),
          ptx::pack_bf16(y.x[4], y.x[5]), ptx::pack_bf16(y.x[6], y.x[7])};
}

struct ConvWeights {
  float4 taps[kConvChannels];  // of each channel
};

// Taps in ascending order, the oldest input first; then x / (1 + exp(-x)).
__device__ __forceinline__ Octet convolve_token(const ConvWeights& weights, const Octet* inputs) {
  Octet y;
#pragma unroll
  for (int i = 0; i < kConvChannels; ++i) {
    const float4 w = weights.taps[i];
    float sum = w.x * inputs[0].x[i];
    sum = fmaf(w.y, inputs[1].x[i], sum);
    sum = fmaf(w.z, inputs[2].x[i], sum);
    sum = fmaf(w.w, inputs[3].x[i], sum);
    y.x[i] = silu(sum);
  }
  return y;
}

__device__ __forceinline__ void store_octet(const ConvLaunch& args, int64_t at, const Octet& y) {
  const uint4 rounded = narrow(y);
  if (args.out_f32 == 0) {
    *reinterpret_cast<uint4*>(static_cast<bf16*>(args.out) + at) = rounded;
    return;
  }
  const Octet stored = args.round_out != 0 ? widen(rounded) : y;
  float4* const to = reinterpret_cast<float4*>(static_cast<float*>(args.out) + at);
  to[0] = {stored.x[0], stored.x[1], stored.x[2], stored.x[3]};
  to[1] = {stored.x[4], stored.x[5], stored.x[6], stored.x[7]};
}

// Where the inputs of one row lie, before and in the step, for the channels at hand.
struct ConvRow {
  const ConvLaunch& args;
  const bf16* inputs;  // of the row's first token
  bf16* ring;
  int start;  // position of the first token

  __device__ __forceinline__ uint4& in_ring(int position) const {
    return *reinterpret_cast<uint4*>(ring + static_cast<int64_t>(position % args.conv_rows) *
                                                args.channels);
  }
  __device__ __forceinline__ uint4 input(int token) const {
    return *reinterpret_cast<const uint4*>(inputs + token * args.input_stride);
  }
  // The input of a token, of one before the row's where negative; zeros before position 0.
  __device__ __forceinline__ uint4 at(int token) const {
    if (token >= 0) return input(token);
    return start + token >= 0 ? in_ring(start + token) : uint4{0, 0, 0, 0};
  }
};

// What the step leaves behind: the tail of a new checkpoint, then the row's newest inputs in the
// ring, which may take the place of what the tail was read from.
__device__ __forceinline__ void move_inputs(const ConvRow& row, const ConvTask& task, int channel) {
  const ConvLaunch& args = row.args;
  const int checkpoint = args.checkpoint[task.row];
  const int blocks = args.packed != 0
                         ? 0
                         : blocks_folded(row.start, checkpoint, args.chunk != 0 ? task.tokens : 0,
                                         args.fold_block);
  if (blocks > 0) {
    const int first = checkpoint + blocks * args.fold_block - 3 - row.start;
    bf16* const tail = args.tail + args.home[task.row] * args.tail_stride + channel;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      *reinterpret_cast<uint4*>(tail + static_cast<int64_t>(i) * args.channels) = row.at(first + i);
    }
  }
  const int kept = min(task.tokens, args.conv_rows);
  for (int i = task.tokens - kept; i < task.tokens; ++i) row.in_ring(row.start + i) = row.input(i);
}

// Channels channel .. channel + 7 of a task.
__device__ inline void convolve(const ConvLaunch& args, const ConvTask& task, int channel) {
  const int end = min(task.tokens, task.offset + kConvTaskTokens);
  const auto out_at = [&](int token) {
    return static_cast<int64_t>(task.first_token + token) * args.channels + channel;
  };
  if (args.base[task.row] < 0) {
    for (int i = task.offset; i < end; ++i) store_octet(args, out_at(i), Octet{});
    return;
  }
  const ConvRow row{
      args, args.input + task.first_token * args.input_stride + channel,
      args.ring + static_cast<int64_t>(task.row) * args.conv_rows * args.channels + channel,
      args.committed[task.row]};
  ConvWeights weights;
#pragma unroll
  for (int i = 0; i < kConvChannels; ++i) {
    weights.taps[i] = reinterpret_cast<const float4*>(args.weight)[channel + i];
  }
  // The tokens of a turn are loaded before the first of them is used.
  constexpr int kTurn = 4;
  Octet x[3 + kTurn];
#pragma unroll
  for (int i = 0; i < 3; ++i) x[i] = widen(row.at(task.offset - 3 + i));
  for (int first = task.offset; first < end; first += kTurn) {
    uint4 loaded[kTurn];
#pragma unroll
    for (int i = 0; i < kTurn; ++i) {
      loaded[i] = first + i < end ? row.input(first + i) : uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (int i = 0; i < kTurn; ++i) {
      x[3 + i] = widen(loaded[i]);
      if (first + i < end) store_octet(args, out_at(first + i), convolve_token(weights, x + i));
    }
#pragma unroll
    for (int i = 0; i < 3; ++i) x[i] = x[kTurn + i];
  }
  if (task.offset == 0) move_inputs(row, task, channel);
}

}  // namespace replayssm::cuda
