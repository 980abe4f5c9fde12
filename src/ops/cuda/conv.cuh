// The causal convolution of width 4 and SiLU for four channels of one task: a thread's work. It
// streams its tokens and keeps the three inputs before the next one in registers.
#pragma once

#include "ops/cuda/advance.cuh"
#include "ops/cuda/conv_args.h"
#include "ops/cuda/numbers.cuh"

namespace replayssm::cuda {

// One token's channels of a thread, as numbers.
struct ConvToken {
  float x[kConvChannels];
};

__device__ __forceinline__ ConvToken widen(const uint2& u) {
  return {{low_half(u.x), high_half(u.x), low_half(u.y), high_half(u.y)}};
}
__device__ __forceinline__ uint2 narrow(const ConvToken& y) {
  return {ptx::pack_bf16(y.x[0], y.x[1]), ptx::pack_bf16(y.x[2], y.x[3])};
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
__device__ __forceinline__ ConvToken convolve_token(const ConvWeights& weights,
                                                    const ConvToken* inputs) {
  ConvToken y;
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

template <bool kOutF32>
__device__ __forceinline__ void store_token(const ConvLaunch& args, int64_t at,
                                            const ConvToken& y) {
  const uint2 rounded = narrow(y);
  if constexpr (!kOutF32) {
    *reinterpret_cast<uint2*>(static_cast<bf16*>(args.out) + at) = rounded;
  } else {
    const ConvToken stored = args.round_out != 0 ? widen(rounded) : y;
    *reinterpret_cast<float4*>(static_cast<float*>(args.out) + at) = {stored.x[0], stored.x[1],
                                                                      stored.x[2], stored.x[3]};
  }
}

// A task, and where its row stands before the step.
struct PlacedConvTask {
  ConvTask task;
  int start;       // position of the row's first token; negative: a null row
  int tail_home;   // the slot that gets a tail; negative: nothing folds
  int tail_first;  // the tail's first input, counted from the row's first token
};

__device__ __forceinline__ PlacedConvTask placed(const ConvLaunch& args, const ConvTask& task) {
  const int base = args.base[task.row], committed = args.committed[task.row];
  const int checkpoint = args.checkpoint[task.row], home = args.home[task.row];
  const int blocks = args.packed != 0
                         ? 0
                         : blocks_folded(committed, checkpoint, args.chunk != 0 ? task.tokens : 0,
                                         args.fold_block);
  return {task, base < 0 ? -1 : committed, blocks > 0 && task.offset == 0 ? home : -1,
          checkpoint + blocks * args.fold_block - 3 - committed};
}

// Where the inputs of one row lie, before and in the step, for the channels at hand.
struct ConvRow {
  const ConvLaunch& args;
  const bf16* inputs;  // of the row's first token
  bf16* ring;
  int start;  // position of the first token

  __device__ __forceinline__ uint2& in_ring(int position) const {
    return *reinterpret_cast<uint2*>(ring + static_cast<int64_t>(position % args.conv_rows) *
                                                args.channels);
  }
  __device__ __forceinline__ uint2 input(int token) const {
    return *reinterpret_cast<const uint2*>(inputs + token * args.input_stride);
  }
  // The input of a token before the row's; zeros before position 0.
  __device__ __forceinline__ uint2 before(int token) const {
    return start + token >= 0 ? in_ring(start + token) : uint2{0, 0};
  }
  __device__ __forceinline__ uint2 at(int token) const {
    return token >= 0 ? input(token) : before(token);
  }
};

__device__ __forceinline__ ConvRow conv_row(const ConvLaunch& args, const PlacedConvTask& placed,
                                            int channel) {
  const ConvTask& task = placed.task;
  return {args, args.input + task.first_token * args.input_stride + channel,
          args.ring + static_cast<int64_t>(task.row) * args.conv_rows * args.channels + channel,
          placed.start};
}
__device__ __forceinline__ int conv_end(const ConvTask& task) {
  return min(task.tokens, task.offset + kConvTaskTokens);
}

// The inputs of kTurn tokens from `first` on; zeros from token `end` on.
template <int kTurn>
struct ConvTurn {
  uint2 input[kTurn];
};
template <int kTurn>
__device__ __forceinline__ ConvTurn<kTurn> load_turn(const ConvRow& row, int first, int end) {
  ConvTurn<kTurn> turn;
  const bf16* const from = row.inputs + first * row.args.input_stride;
  const auto stride = static_cast<uint32_t>(row.args.input_stride);
#pragma unroll
  for (uint32_t i = 0; i < kTurn; ++i) {
    const bool exists = first + static_cast<int>(i) < end;
    turn.input[i] = exists ? *reinterpret_cast<const uint2*>(from + i * stride) : uint2{0, 0};
  }
  return turn;
}

// What a task begins with: the three inputs before its first token, and its first turn. Loaded
// while the task before it is convolved.
template <int kTurn>
struct ConvStart {
  uint2 before[3];
  ConvTurn<kTurn> turn;
};

// Calls ready() before it reads an input of the step; cursors and ring are read before.
template <int kTurn, class Ready>
__device__ __forceinline__ ConvStart<kTurn> begin_task(const ConvLaunch& args,
                                                       const PlacedConvTask& placed, int channel,
                                                       const Ready& ready) {
  ConvStart<kTurn> start{};
  if (placed.start < 0) {
    ready();
    return start;
  }
  const ConvRow row = conv_row(args, placed, channel);
  const int first = placed.task.offset;
  if (first == 0) {
#pragma unroll
    for (int i = 0; i < 3; ++i) start.before[i] = row.before(i - 3);
    ready();
  } else {
    ready();
#pragma unroll
    for (int i = 0; i < 3; ++i) start.before[i] = row.input(first - 3 + i);
  }
  start.turn = load_turn<kTurn>(row, first, conv_end(placed.task));
  return start;
}

// Channels channel .. channel + 3 of a task that has begun, kTurn tokens at a time.
template <bool kOutF32, int kTurn>
__device__ __forceinline__ void convolve(const ConvLaunch& args, const ConvWeights& weights,
                                         const PlacedConvTask& placed,
                                         const ConvStart<kTurn>& start, int channel) {
  const ConvTask& task = placed.task;
  const int end = conv_end(task);
  int64_t out = static_cast<int64_t>(task.first_token + task.offset) * args.channels + channel;
  if (placed.start < 0) {
    for (int i = task.offset; i < end; ++i, out += args.channels) {
      store_token<kOutF32>(args, out, ConvToken{});
    }
    return;
  }
  const ConvRow row = conv_row(args, placed, channel);
  if (placed.tail_home >= 0) {  // the tail that a new checkpoint leaves behind
    bf16* const tail = args.tail + placed.tail_home * args.tail_stride + channel;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      *reinterpret_cast<uint2*>(tail + static_cast<int64_t>(i) * args.channels) =
          row.at(placed.tail_first + i);
    }
  }
  // The row's newest inputs go to the ring, in the place of what has been read by now. Where a row
  // has several tasks the first moves them, since no other reads the ring.
  const int kept = task.offset == 0 ? task.tokens - min(task.tokens, args.conv_rows) : task.tokens;
  ConvTurn<kTurn> turn = start.turn;
  ConvToken x[3 + kTurn];
#pragma unroll
  for (int i = 0; i < 3; ++i) x[i] = widen(start.before[i]);
#pragma unroll 1
  for (int first = task.offset; first < end; first += kTurn) {
    if (first + kTurn > kept) {
#pragma unroll
      for (int i = 0; i < kTurn; ++i) {
        const int token = first + i;
        if (token >= kept && token < end) row.in_ring(row.start + token) = turn.input[i];
      }
    }
#pragma unroll
    for (int i = 0; i < kTurn; ++i) x[3 + i] = widen(turn.input[i]);
    turn = load_turn<kTurn>(row, first + kTurn, end);
    // All tokens of the turn side by side, so that they hide each other's latencies.
    ConvToken y[kTurn];
#pragma unroll
    for (int i = 0; i < kTurn; ++i) y[i] = convolve_token(weights, x + i);
#pragma unroll
    for (int i = 0; i < kTurn; ++i, out += args.channels) {
      if (first + i < end) store_token<kOutF32>(args, out, y[i]);
    }
#pragma unroll
    for (int i = 0; i < 3; ++i) x[i] = x[kTurn + i];
  }
#pragma unroll 4
  for (int i = max(kept, end); i < task.tokens; ++i) row.in_ring(row.start + i) = row.input(i);
}

}  // namespace replayssm::cuda
