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
__device__ __forceinline__ ConvWeights load_conv_weights(const ConvLaunch& args, int channel) {
  ConvWeights weights;
#pragma unroll
  for (int i = 0; i < kConvChannels; ++i) {
    weights.taps[i] = reinterpret_cast<const float4*>(args.weight)[channel + i];
  }
  return weights;
}

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
  // The input of a token before the row's; zeros before position 0.
  __device__ __forceinline__ uint4 before(int token) const {
    return start + token >= 0 ? in_ring(start + token) : uint4{0, 0, 0, 0};
  }
  __device__ __forceinline__ uint4 at(int token) const {
    return token >= 0 ? input(token) : before(token);
  }
};

// The tail that a new checkpoint leaves behind.
__device__ __forceinline__ void write_tail(const ConvRow& row, const ConvTask& task, int channel) {
  const ConvLaunch& args = row.args;
  const int checkpoint = args.checkpoint[task.row];
  const int blocks = args.packed != 0
                         ? 0
                         : blocks_folded(row.start, checkpoint, args.chunk != 0 ? task.tokens : 0,
                                         args.fold_block);
  if (blocks == 0) return;
  const int first = checkpoint + blocks * args.fold_block - 3 - row.start;
  bf16* const tail = args.tail + args.home[task.row] * args.tail_stride + channel;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    *reinterpret_cast<uint4*>(tail + static_cast<int64_t>(i) * args.channels) = row.at(first + i);
  }
}

// Channels channel .. channel + 7 of a task. Before it reads an input of the step or writes
// anything it calls ready(); the cursors and the ring are read before.
template <class Ready>
__device__ __forceinline__ void convolve(const ConvLaunch& args, const ConvWeights& weights,
                                         const ConvTask& task, int channel, Ready&& ready) {
  const int end = min(task.tokens, task.offset + kConvTaskTokens);
  const auto out_at = [&](int token) {
    return static_cast<int64_t>(task.first_token + token) * args.channels + channel;
  };
  if (args.base[task.row] < 0) {
    ready();
    for (int i = task.offset; i < end; ++i) store_octet(args, out_at(i), Octet{});
    return;
  }
  const ConvRow row{
      args, args.input + task.first_token * args.input_stride + channel,
      args.ring + static_cast<int64_t>(task.row) * args.conv_rows * args.channels + channel,
      args.committed[task.row]};
  // The tokens of a turn are loaded while those of the turn before are convolved.
  constexpr int kTurn = 4;
  Octet x[3 + kTurn];
  if (task.offset == 0) {
#pragma unroll
    for (int i = 0; i < 3; ++i) x[i] = widen(row.before(i - 3));
    ready();
    write_tail(row, task, channel);
  } else {
    ready();
#pragma unroll
    for (int i = 0; i < 3; ++i) x[i] = widen(row.input(task.offset - 3 + i));
  }
  // The row's newest inputs go to the ring, in the place of what has been read by now. Where a row
  // has several tasks the first moves them, since no other reads the ring.
  const int kept = task.offset == 0 ? task.tokens - min(task.tokens, args.conv_rows) : task.tokens;
  uint4 next[kTurn];
  const auto load = [&](int first) {
#pragma unroll
    for (int i = 0; i < kTurn; ++i) {
      next[i] = first + i < end ? row.input(first + i) : uint4{0, 0, 0, 0};
    }
  };
  load(task.offset);
#pragma unroll 1
  for (int first = task.offset; first < end; first += kTurn) {
#pragma unroll
    for (int i = 0; i < kTurn; ++i) {
      const int token = first + i;
      if (token >= kept && token < end) row.in_ring(row.start + token) = next[i];
      x[3 + i] = widen(next[i]);
    }
    load(first + kTurn);
#pragma unroll
    for (int i = 0; i < kTurn; ++i) {
      if (first + i < end) store_octet(args, out_at(first + i), convolve_token(weights, x + i));
    }
#pragma unroll
    for (int i = 0; i < 3; ++i) x[i] = x[kTurn + i];
  }
#pragma unroll 4
  for (int i = max(kept, end); i < task.tokens; ++i) row.in_ring(row.start + i) = row.input(i);
}

}  // namespace replayssm::cuda
