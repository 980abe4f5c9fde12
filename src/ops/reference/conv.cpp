#include <cmath>

#include "core/bfloat16.h"
#include "ops/reference/ops.h"
#include "replay/cursor.h"

namespace replayssm::reference {
namespace {

double get(const void* data, DType type, std::size_t index) {
  return type == DType::bf16 ? to_float(static_cast<const bf16*>(data)[index])
                             : static_cast<const float*>(data)[index];
}

void put(void* data, DType type, std::size_t index, double value) {
  const float x = static_cast<float>(value);
  if (type == DType::bf16)
    static_cast<bf16*>(data)[index] = to_bf16(x);
  else
    static_cast<float*>(data)[index] = x;
}

void convolve(const ConvArgs& args, const RowTokens& row, Depth checkpoint_after, bool folds) {
  const std::int32_t at = row.row.value;
  const int channels = args.rings.channels;
  const Depth start = args.cursors.committed[at];
  const auto ring_index = [&](Depth position, int channel) {
    return (static_cast<std::size_t>(at) * args.rings.conv_rows +
            args.geometry.conv_row(position)) *
               channels +
           channel;
  };
  for (int channel = 0; channel < channels; ++channel) {
    // Inputs from three before the checkpoint or the row's first token, whichever is older.
    const Depth oldest = std::min(start, folds ? checkpoint_after : start) - 3;
    std::vector<double> inputs;
    for (Depth p = oldest; p < start; p += 1) {
      inputs.push_back(
          p.tokens < 0 ? 0.0 : get(args.rings.inputs, args.rings.type, ring_index(p, channel)));
    }
    for (int i = 0; i < row.tokens; ++i) {
      const float x =
          args.input[static_cast<std::size_t>(row.first_token + i) * channels + channel];
      inputs.push_back(args.rings.type == DType::bf16 ? round_to_bf16(x) : x);
    }
    const auto input = [&](Depth position) { return inputs[position - oldest]; };
    if (folds) {
      const std::int32_t home = args.cursors.home[at].value;
      for (int i = 0; i < 3; ++i) {
        put(args.tails.inputs, args.tails.type,
            home * args.tails.slot_stride + static_cast<std::size_t>(i) * channels + channel,
            input(checkpoint_after - 3 + i));
      }
    }
    for (int i = 0; i < row.tokens; ++i) {
      const Depth position = start + i;
      double sum = 0;
      for (int tap = 0; tap < kConvWidth; ++tap) {
        sum += static_cast<double>(args.weight[channel * kConvWidth + tap]) *
               input(position - 3 + tap);
      }
      const float y = static_cast<float>(sum / (1.0 + std::exp(-sum)));
      args.out[static_cast<std::size_t>(row.first_token + i) * channels + channel] =
          args.round_to == DType::bf16 ? round_to_bf16(y) : y;
      put(args.rings.inputs, args.rings.type, ring_index(position, channel), input(position));
    }
  }
}

void convolve_rows(const ConvArgs& args, bool chunk) {
  for (const RowTokens& row : args.rows) {
    const std::int32_t at = row.row.value;
    if (args.cursors.base[at] == kNullSlot) {
      const auto channels = static_cast<std::size_t>(args.rings.channels);
      std::fill_n(args.out + row.first_token * channels, row.tokens * channels, 0.0f);
      continue;
    }
    const Cursor cursor{args.cursors.committed[at], args.cursors.checkpoint[at]};
    const int blocks = args.recurrence == Recurrence::packed ? 0
                       : chunk ? blocks_folded_by_chunk(cursor, row.tokens, args.geometry)
                               : blocks_folded_by_window(cursor, args.geometry);
    convolve(args, row, cursor.checkpoint + blocks * args.geometry.fold_block(), blocks > 0);
  }
}

}  // namespace

void conv_window(const ConvArgs& args) { convolve_rows(args, false); }
void conv_chunk(const ConvArgs& args) { convolve_rows(args, true); }

}  // namespace replayssm::reference
