// The units of a window_step of several tokens, for the producer warp of producer.cuh.
#pragma once

#include "ops/cuda/producer.cuh"
#include "ops/cuda/window_layout.h"

namespace replayssm::cuda {

// Copies `tokens` rows of kBytes bytes, `stride` elements apart, to consecutive rows. All lanes.
template <int kBytes>
__device__ __forceinline__ void copy_rows(bf16* to, const bf16* from, int64_t stride, int tokens) {
  constexpr int kPieces = kBytes / 16, kElements = 16 / sizeof(bf16);
  for (int i = ptx::lane(); i < tokens * kPieces; i += 32) {
    const int token = i / kPieces, piece = i % kPieces;
    ptx::copy_piece(to + i * kElements, from + token * stride + piece * kElements);
  }
}

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
  __device__ void look_up_cursor(int, Lookup& l) const {
    if (l.row < 0) return;
    l.depth = args.batch.committed[l.row];
    l.checkpoint = args.batch.checkpoint[l.row];
    l.source = args.batch.base[l.row];
    l.destination = args.batch.home[l.row];
  }

  // One lane.
  __device__ void describe(int unit, const Lookup& l, Unit& u) const {
    using State = typename Layout::State;
    const int heads = args.value_heads, group = heads / args.key_heads;
    const int first_value = unit % Layout::kParts * Layout::kRows;
    const int value_head = unit / Layout::kParts % heads;
    const int key_head = value_head / group;
    const int64_t value_token = static_cast<int64_t>(l.first_token) * heads + value_head;
    u.kind = UnitKind::null_row;
    u.records = 0;
    u.fold = 0;
    u.has_state = 0;
    u.value_head = value_head;
    u.first_value = first_value;
    u.tokens = l.tokens;
    u.out = static_cast<char*>(args.out) +
            (value_token * kValueDim + first_value) * (args.out_f32 ? 4 : 2);
    if (l.source < 0) return;
    u.kind = UnitKind::live;
    u.records = l.depth - l.checkpoint;
    u.fold = u.records >= args.fold_block;
    u.has_state = l.checkpoint > 0;
    u.owns_key_row = first_value == 0 && value_head % group == 0;
    u.owns_gate_row = first_value == 0;
    State* const head_state =
        static_cast<State*>(args.state.data) +
        (static_cast<int64_t>(value_head) * kValueDim + first_value) * kKeyDim;
    u.state = head_state + l.source * args.state.slot_stride;
    u.state_out = head_state + l.destination * args.state.slot_stride;
    describe_rings<Layout>(u, args.ring, l.row, args.key_heads, heads, args.ring_rows);
    u.first_row = l.checkpoint & (args.ring_rows - 1);
    u.append_row = l.depth & (args.ring_rows - 1);
    // Record rows are added by whoever appends.
    u.key_out = args.ring.keys + (u.keys - args.ring.keys);
    u.key_scale_out = args.ring.key_scales + (u.key_scales - args.ring.key_scales);
    State* const corrections = static_cast<State*>(args.ring.corrections);
    u.correction_out =
        corrections + (static_cast<const State*>(u.corrections) - corrections) + first_value;
    u.gate_out = args.ring.gates + (u.gates - args.ring.gates);
    const bf16* const x = args.qkv + l.first_token * args.token_stride;
    const int keys_at = args.key_heads * kKeyDim;
    u.q = x + key_head * kKeyDim;
    u.k = u.q + keys_at;
    u.v = x + 2 * keys_at + value_head * kValueDim + first_value;
    u.gate = args.gate + value_token * Layout::kGateWidth;
    u.beta = args.beta + value_token;
  }

  // All lanes: the window's inputs, keys and log gates as the records that follow the ring's.
  __device__ void copy_inputs(const Unit& u, typename Layout::Stage& stage) const {
    const int tokens = u.tokens;
    copy_rows<kKeyDim * 2>(stage.q, u.q, args.token_stride, tokens);
    copy_rows<kKeyDim * 2>(stage.keys + u.records * kKeyDim, u.k, args.token_stride, tokens);
    copy_rows<Layout::kRows * 2>(stage.v, u.v, args.token_stride, tokens);
    const int heads = args.value_heads;
    if constexpr (Layout::kKda) {
      for (int i = 0; i < tokens; ++i) {
        ptx::copy_small(stage.gates + (u.records + i) * kKeyDim,
                        u.gate + static_cast<int64_t>(i) * heads * kKeyDim,
                        kKeyDim * sizeof(float));
      }
    }
    if (const int i = ptx::lane(); i < tokens) {
      const int64_t at = static_cast<int64_t>(i) * heads;
      if constexpr (!Layout::kKda) ptx::copy_float(stage.gates + u.records + i, u.gate + at, true);
      ptx::copy_float(stage.beta + i, u.beta + at, true);
    }
  }
};

}  // namespace replayssm::cuda
