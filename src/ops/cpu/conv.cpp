// conv_window and conv_chunk for a block of channels of one row.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/conv.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/cpu/vector_math-inl.h"
#include "replay/cursor.h"

HWY_BEFORE_NAMESPACE();
namespace replayssm::cpu {
namespace HWY_NAMESPACE {

// One row's inputs of the channels at hand, padded to whole vectors.
struct Channels {
  alignas(64) float x[kConvChannels];
};

struct StoredRow {
  void* data;
  DType type;
  std::size_t offset;

  void read(Channels& to, int count) const {
    if (type == DType::f32) {
      std::copy_n(static_cast<const float*>(data) + offset, count, to.x);
      return;
    }
    const bf16* from = static_cast<const bf16*>(data) + offset;
    for (int i = 0; i < count; ++i) to.x[i] = to_float(from[i]);
  }
  void write(const Channels& from, int count) const {
    if (type == DType::f32) {
      std::copy_n(from.x, count, static_cast<float*>(data) + offset);
      return;
    }
    bf16* to = static_cast<bf16*>(data) + offset;
    for (int i = 0; i < count; ++i) to[i] = to_bf16(from.x[i]);
  }
};

void convolve_channels(const ConvTask& task) {
  const F f;
  const ConvArgs& args = *task.args;
  const RowTokens& row = *task.row;
  const std::int32_t at = row.row.value;
  const int count = task.channels;
  const auto stride = static_cast<std::size_t>(args.rings.channels);
  const Cursor cursor{args.cursors.committed[at], args.cursors.checkpoint[at]};
  const int blocks = args.recurrence == Recurrence::packed ? 0
                     : task.chunk ? blocks_folded_by_chunk(cursor, row.tokens, args.geometry)
                                  : blocks_folded_by_window(cursor, args.geometry);
  const Depth start = cursor.committed;
  const Depth end = start + row.tokens;
  const Depth folded_to = cursor.checkpoint + blocks * args.geometry.fold_block();

  const auto ring_row = [&](Depth position) {
    const auto index =
        static_cast<std::size_t>(at) * args.rings.conv_rows + args.geometry.conv_row(position);
    return StoredRow{args.rings.inputs, args.rings.type, index * stride + task.first_channel};
  };
  const auto in_tail = [&](Depth position) {
    return blocks > 0 && position >= folded_to - 3 && position < folded_to;
  };
  const auto tail_row = [&](Depth position) {
    const int i = position - (folded_to - 3);
    return StoredRow{
        args.tails.inputs, args.tails.type,
        args.cursors.home[at].value * args.tails.slot_stride + i * stride + task.first_channel};
  };

  Channels taps[kConvWidth];  // weights by tap
  for (int tap = 0; tap < kConvWidth; ++tap) {
    std::fill_n(taps[tap].x, kConvChannels, 0.0f);
    for (int i = 0; i < count; ++i) {
      taps[tap].x[i] =
          args.weight[static_cast<std::size_t>(task.first_channel + i) * kConvWidth + tap];
    }
  }

  // What the tail gets from before this step; positions before 0 count as zeros.
  Channels current;
  std::fill_n(current.x, kConvChannels, 0.0f);
  if (blocks > 0) {
    for (Depth p = folded_to - 3; p < std::min(folded_to, start); p += 1) {
      if (p.tokens < 0)
        std::fill_n(current.x, count, 0.0f);
      else
        ring_row(p).read(current, count);
      tail_row(p).write(current, count);
    }
  }

  // The input of position i lies in past[i mod 3] until that of i + 3 replaces it.
  Channels past[3];
  for (auto& each : past) std::fill_n(each.x, kConvChannels, 0.0f);
  for (Depth p = start - 3; p < start; p += 1) {
    if (p.tokens >= 0) ring_row(p).read(past[p.tokens % 3], count);
  }
  for (Depth p = start; p < end; p += 1) {
    const std::size_t token =
        static_cast<std::size_t>(row.first_token + (p - start)) * stride + task.first_channel;
    std::copy_n(args.input + token, count, current.x);
    if (args.rings.type == DType::bf16) {
      for (int i = 0; i < kConvChannels; i += kLanes) {
        hn::Store(round_to_bf16(hn::Load(f, current.x + i)), f, current.x + i);
      }
    }
    if (end - p <= args.rings.conv_rows) ring_row(p).write(current, count);
    if (in_tail(p)) tail_row(p).write(current, count);
    Channels result;
    const int first_tap = std::max(0, 3 - p.tokens);  // older inputs do not exist
    for (int i = 0; i < count; i += kLanes) {
      V sum = hn::Zero(f);
      for (int tap = first_tap; tap < 3; ++tap) {
        const float* x = past[(p.tokens - 3 + tap) % 3].x;
        sum = hn::MulAdd(hn::Load(f, taps[tap].x + i), hn::Load(f, x + i), sum);
      }
      sum = hn::MulAdd(hn::Load(f, taps[3].x + i), hn::Load(f, current.x + i), sum);
      V y = silu(sum);
      if (args.round_to == DType::bf16) y = round_to_bf16(y);
      hn::Store(y, f, result.x + i);
    }
    std::copy_n(result.x, count, args.out + token);
    std::swap(past[p.tokens % 3], current);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace replayssm::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replayssm::cpu {

HWY_EXPORT(convolve_channels);

void convolve_channels(const ConvTask& task) { HWY_DYNAMIC_DISPATCH(convolve_channels)(task); }

}  // namespace replayssm::cpu
#endif
