// The records that a chunk leaves in the ring, as far as value heads share them or the inputs alone
// say them: keys, their scales, decays. They are appended by a launch behind the one that evaluates
// the chunk, when every head has read the ring: so a ring of any size will do.
#pragma once

#include "ops/cuda/inputs.cuh"
#include "ops/cuda/step_unit.cuh"

namespace replayssm::cuda {

struct KeyAsInputs {
  const bf16* q;
  const bf16* k;
};

// One warp: token `index` of those that stay pending, of one entry and key head; nothing where
// there are fewer. The scale has the bits of a step's.
template <GateKind kGate>
__device__ __forceinline__ void append_chunk_record(const StepArgs& args, int entry, int key_head,
                                                    int index) {
  using Layout = StageLayout<kGate, bf16, 0, kValueDim>;
  constexpr int kGateWidth = Layout::kGateWidth;
  const int row = args.batch.row[entry];
  if (row < 0 || args.batch.base[row] < 0) return;
  const int committed = args.batch.committed[row], tokens = args.batch.tokens[entry];
  const int resting = (committed + tokens - 1) / args.fold_block * args.fold_block;
  const int position = max(committed, resting) + index;
  if (position >= committed + tokens) return;
  const int64_t token = args.batch.first_token[entry] + (position - committed);
  const int ring_row = position & (args.ring_rows - 1), lane = ptx::lane();
  const bf16* const key =
      args.qkv + token * args.token_stride + (args.key_heads + key_head) * kKeyDim;
  const float scale = norms_of(load_inputs(KeyAsInputs{key, key}), 1.0f).key;
  const int64_t key_record =
      (static_cast<int64_t>(row) * args.key_heads + key_head) * args.ring_rows + ring_row;
  reinterpret_cast<uint2*>(args.ring.keys + key_record * kKeyDim)[lane] =
      reinterpret_cast<const uint2*>(key)[lane];
  if (lane == 0) args.ring.key_scales[key_record] = scale;
  const int group = args.value_heads / args.key_heads;
  for (int i = lane; i < group * kGateWidth; i += 32) {
    const int head = key_head * group + i / kGateWidth, channel = i % kGateWidth;
    const float gate = args.gate[(token * args.value_heads + head) * kGateWidth + channel];
    const int64_t record =
        (static_cast<int64_t>(row) * args.value_heads + head) * args.ring_rows + ring_row;
    args.ring.gates[record * kGateWidth + channel] =
        decay(resolve_gate<Layout>(args, gate, head, channel));
  }
}

// Warps of the launch: one for each entry, key head and position of a block.
__device__ __forceinline__ int chunk_tail_warps(const StepArgs& args) {
  return args.batch.entries * args.key_heads * args.fold_block;
}

template <GateKind kGate>
__device__ __forceinline__ void append_chunk_tail(const StepArgs& args, int warp) {
  const int index = warp % args.fold_block, rest = warp / args.fold_block;
  append_chunk_record<kGate>(args, rest / args.key_heads, rest % args.key_heads, index);
}

}  // namespace replayssm::cuda
