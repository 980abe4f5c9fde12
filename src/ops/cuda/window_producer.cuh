// The units of a window_step of several tokens, for the producers of producer.cuh.
#pragma once

#include "ops/cuda/producer.cuh"
#include "ops/cuda/window_layout.h"

namespace replayssm::cuda {

template <class Layout>
struct WindowUnits {
  const StepArgs& args;

  __device__ int count() const { return args.batch.entries * args.value_heads * Layout::kParts; }
  __device__ int ring_rows() const { return args.ring_rows; }
  __device__ bool settled() const { return args.settled != 0; }

  __device__ void look_up_row(int unit, Lookup& l) const {
    const int entry = unit / (Layout::kParts * args.value_heads);
    l.row = args.batch.row[entry];
    l.first_token = args.batch.first_token == nullptr ? entry : args.batch.first_token[entry];
    l.tokens = args.batch.tokens == nullptr ? 1 : args.batch.tokens[entry];
  }
  __device__ void look_up_cursor(int, Lookup& l) const { look_up_cursor_of(args.batch, l); }

  // One lane.
  __device__ void describe(int unit, const Lookup& l, Unit& u) const {
    describe_step<Layout>(args, unit, l, u);
  }

  // All lanes that copy the unit: the window's inputs, keys and log gates as the records that
  // follow the ring's.
  __device__ void copy_inputs(const Copiers& who, const Unit& u,
                              typename Layout::Stage& stage) const {
    const int tokens = u.tokens, records = u.records;
    if constexpr (Layout::kSwizzled) {
      static_assert(Layout::kRows == kValueDim);
      const int column = (who.index & 15) * 8;
      const bf16 *const q = u.q + column, *const k = u.k + column, *const v = u.v + column;
      int64_t from = (who.index >> 4) * args.token_stride;
      const int64_t step = (who.count >> 4) * args.token_stride;
#pragma unroll 1
      for (int i = who.index >> 4; i < tokens; i += who.count >> 4) {
        ptx::copy_piece(stage.q + swizzled<kKeyDim>(i, column), q + from);
        ptx::copy_piece(stage.keys + swizzled<kKeyDim>(records + i, column), k + from);
        ptx::copy_piece(stage.corrections + (records + i) * kValueDim + column, v + from);
        from += step;
      }
    } else {
      const auto rows_of = [stride = args.token_stride](const bf16* from) {
        return [=](int i) { return from + i * stride; };
      };
      copy_rows<kKeyDim * sizeof(bf16)>(who, stage.q, kKeyDim, tokens, rows_of(u.q));
      copy_rows<kKeyDim * sizeof(bf16)>(who, stage.keys + records * kKeyDim, kKeyDim, tokens,
                                        rows_of(u.k));
      copy_rows<Layout::kRows * sizeof(bf16)>(who, stage.v, Layout::kRows, tokens, rows_of(u.v));
    }
    const int heads = args.value_heads;
    if constexpr (Layout::kKda) {
      copy_rows<kKeyDim * sizeof(float)>(
          who, stage.gates + records * kKeyDim, kKeyDim, tokens,
          [=, gate = u.gate](int i) { return gate + static_cast<int64_t>(i) * heads * kKeyDim; });
    }
    if (const int i = who.index; i < tokens) {
      const int64_t at = static_cast<int64_t>(i) * heads;
      if constexpr (!Layout::kKda) ptx::copy_float(stage.gates + records + i, u.gate + at, true);
      ptx::copy_float(stage.beta + i, u.beta + at, true);
    }
  }
};

}  // namespace replayssm::cuda
