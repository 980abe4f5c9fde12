// The causal convolution of width 4 and SiLU: a block's work. A thread has four channels; it
// streams the tokens of a row and keeps the three inputs before the next one in registers, or takes
// some rows of one token each at once.
#pragma once

#include "ops/cuda/advance.cuh"
#include "ops/cuda/conv_args.h"
#include "ops/cuda/numbers.cuh"

namespace replayssm::cuda {

inline constexpr int kConvThreads = 128;  // of a block

// What a thread does side by side: kTurnTokens tokens of a row, or kTurnRows rows of one token
// each.
template <int kTurnTokens, int kTurnRows>
struct ConvShape {
  static constexpr int kTurn = kTurnTokens, kRows = kTurnRows;
};
// Calls launch(ConvShape) with what serves a launch best (bench/lab/NOTES.md).
template <class Launch>
auto with_conv_shape(const ConvLaunch& args, const Launch& launch) {
  if (args.one_token != 0) return launch(ConvShape<1, 2>{});
  return args.chunk != 0 ? launch(ConvShape<8, 1>{}) : launch(ConvShape<4, 1>{});
}

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
  int ring_row;    // of the row's first token
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
  return {task, base < 0 ? -1 : committed, committed % args.conv_rows,
          blocks > 0 && task.offset == 0 ? home : -1,
          checkpoint + blocks * args.fold_block - 3 - committed};
}

// Where the inputs of one row lie, before and in the step, for the channels at hand.
struct ConvRow {
  const ConvLaunch& args;
  const bf16* inputs;  // of the row's first token
  bf16* ring;
  int start;     // position of the first token
  int ring_row;  // its place in the ring

  __device__ __forceinline__ uint2& in_ring(int row) const {
    return *reinterpret_cast<uint2*>(ring + static_cast<int64_t>(row) * args.channels);
  }
  __device__ __forceinline__ uint2 input(int token) const {
    return *reinterpret_cast<const uint2*>(inputs + token * args.input_stride);
  }
  // The input of a token before the row's, one that the ring still has; zeros before position 0.
  __device__ __forceinline__ uint2 before(int token) const {
    const int row = ring_row + token;
    return start + token >= 0 ? in_ring(row < 0 ? row + args.conv_rows : row) : uint2{0, 0};
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
          placed.start, placed.ring_row};
}

// The tail that a new checkpoint leaves behind.
__device__ __forceinline__ void move_tail(const ConvRow& row, const PlacedConvTask& placed,
                                          int channel) {
  if (placed.tail_home < 0) return;
  const ConvLaunch& args = row.args;
  bf16* const tail = args.tail + placed.tail_home * args.tail_stride + channel;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    *reinterpret_cast<uint2*>(tail + static_cast<int64_t>(i) * args.channels) =
        row.at(placed.tail_first + i);
  }
}

// Tasks of a row that follow each other are convolved as one.
struct ConvRun {
  int task;  // the first
  int next;  // the one after the last
  int end;   // the row's token after the last
};
__device__ __forceinline__ ConvRun conv_run(const PlacedConvTask* tasks, int first, int count) {
  int next = first + 1;
  while (next < count && tasks[next].task.offset > 0) ++next;
  const ConvTask& last = tasks[next - 1].task;
  return {first, next, min(last.tokens, last.offset + kConvTaskTokens)};
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

// What a run begins with: the three inputs before its first token, and its first turn. Loaded
// while the run before it is convolved.
template <int kTurn>
struct ConvStart {
  uint2 before[3];
  ConvTurn<kTurn> turn;
};

// Calls ready() before it reads an input of the step; cursors and ring are read before.
template <int kTurn, class Ready>
__device__ __forceinline__ ConvStart<kTurn> begin_run(const ConvLaunch& args,
                                                      const PlacedConvTask& placed, int end,
                                                      int channel, const Ready& ready) {
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
  start.turn = load_turn<kTurn>(row, first, end);
  return start;
}

// Channels channel .. channel + 3 of a run that has begun, kTurn tokens at a time.
template <bool kOutF32, int kTurn>
__device__ __forceinline__ void convolve_run(const ConvLaunch& args, const ConvWeights& weights,
                                             const PlacedConvTask& placed, int end,
                                             const ConvStart<kTurn>& start, int channel) {
  const ConvTask& task = placed.task;
  int64_t out = static_cast<int64_t>(task.first_token + task.offset) * args.channels + channel;
  if (placed.start < 0) {
    for (int i = task.offset; i < end; ++i, out += args.channels) {
      store_token<kOutF32>(args, out, ConvToken{});
    }
    return;
  }
  const ConvRow row = conv_row(args, placed, channel);
  move_tail(row, placed, channel);
  // The row's newest inputs go to the ring, in the place of what has been read by now. Where a row
  // has several tasks the first moves them, since no other reads the ring.
  const int kept = task.offset == 0 ? max(task.tokens - args.conv_rows, 0) : task.tokens;
  int ring_row = kept == 0 ? row.ring_row : (row.ring_row + kept) % args.conv_rows;
  const auto keep = [&](const uint2& input) {
    row.in_ring(ring_row) = input;
    ring_row = ring_row + 1 == args.conv_rows ? 0 : ring_row + 1;
  };
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
        if (token >= kept && token < end) keep(turn.input[i]);
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
  for (int i = max(kept, end); i < task.tokens; ++i) keep(row.input(i));
}

// The first `count` of kRows tasks of one token each, a row's only one: all that they read is on
// its way before the first is convolved. Calls ready() as begin_run does.
template <bool kOutF32, int kRows, class Ready>
__device__ __forceinline__ void convolve_rows(const ConvLaunch& args, const ConvWeights& weights,
                                              const PlacedConvTask* tasks, int count, int channel,
                                              const Ready& ready) {
  uint2 inputs[kRows][4];
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const bool reads = j < count && tasks[j].start >= 0;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      inputs[j][i] = reads ? conv_row(args, tasks[j], channel).before(i - 3) : uint2{0, 0};
    }
  }
  ready();
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const bool reads = j < count && tasks[j].start >= 0;
    inputs[j][3] = reads ? conv_row(args, tasks[j], channel).input(0) : uint2{0, 0};
  }
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    if (j >= count) break;
    const int64_t out = static_cast<int64_t>(tasks[j].task.first_token) * args.channels + channel;
    if (tasks[j].start < 0) {
      store_token<kOutF32>(args, out, ConvToken{});
      continue;
    }
    const ConvRow row = conv_row(args, tasks[j], channel);
    move_tail(row, tasks[j], channel);
    row.in_ring(row.ring_row) = inputs[j][3];
    ConvToken x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = widen(inputs[j][i]);
    store_token<kOutF32>(args, out, convolve_token(weights, x));
  }
}

__device__ __forceinline__ void gate_of_projection(const GateProjections& args, int i) {
  const int head = i % args.value_heads;
  const int64_t at = i / args.value_heads * args.stride + head;
  args.gate[i] = log_gate(widen(args.a[at]), args.a_log[head], args.dt_bias[head], 0.0f);
  args.beta[i] = beta_of(widen(args.b[at]));
}

// A block of the grid, [shares][slabs], and one more slab where there are gates. Blocks of a slab
// have the same channels and neighbouring parts of the tasks; those of the last make the gates.
struct ConvPlace {
  int slab, slabs;  // slabs: of channels
  int share, shares;
};

// ready() lets this launch see what the one before it wrote; the first call counts.
template <bool kOutF32, class Shape, class Ready>
__device__ __forceinline__ void conv_block(const ConvLaunch& args, const ConvPlace& at,
                                           PlacedConvTask (&tasks)[kConvThreads],
                                           const Ready& ready) {
  constexpr int kTurn = Shape::kTurn, kRows = Shape::kRows;
  if (at.slab == at.slabs) {
    ready();
    const int count = args.gates.tokens * args.gates.value_heads;
    for (int i = at.share * kConvThreads + ptx::thread(); i < count;
         i += at.shares * kConvThreads) {
      gate_of_projection(args.gates, i);
    }
    return;
  }
  if (args.settled == 0) ready();
  const int channel = (at.slab * kConvThreads + ptx::thread()) * kConvChannels;
  const bool has_channels = channel < args.channels;
  ConvWeights weights;
  if (has_channels) weights = load_conv_weights(args, channel);
  const auto begin_of_share = [&](int share) {
    return static_cast<int>(static_cast<int64_t>(args.task_count) * share / at.shares);
  };
  const int begin = begin_of_share(at.share), end = begin_of_share(at.share + 1);
  // One thread looks up a task, so that a block waits once for all its lookups.
  for (int first = begin; first < end; first += kConvThreads) {
    if (first != begin) ptx::sync_block();  // they are still read
    const int count = min(kConvThreads, end - first);
    if (ptx::thread() < count) {
      tasks[ptx::thread()] = placed(args, args.tasks[first + ptx::thread()]);
    }
    ptx::sync_block();
    if (!has_channels) continue;
    if constexpr (kTurn == 1) {
      for (int i = 0; i < count; i += kRows) {
        convolve_rows<kOutF32, kRows>(args, weights, tasks + i, count - i, channel, ready);
      }
    } else {
      // A run's first inputs come while the run before is convolved.
      const auto begin_of = [&](const ConvRun& run) {
        return begin_run<kTurn>(args, tasks[run.task], run.end, channel, ready);
      };
      ConvRun next = conv_run(tasks, 0, count);
      ConvStart<kTurn> next_start = begin_of(next);
      bool is_last = false;
      while (!is_last) {
        const ConvRun run = next;
        const ConvStart<kTurn> start = next_start;
        is_last = run.next >= count;
        if (!is_last) {
          next = conv_run(tasks, run.next, count);
          next_start = begin_of(next);
        }
        convolve_run<kOutF32, kTurn>(args, weights, tasks[run.task], run.end, start, channel);
      }
    }
  }
}

}  // namespace replayssm::cuda
