// Rows of an fp32 state in the registers of a warp, where the matrix units take and leave them:
// loaded, stored and folded there. GDN's windows have one chunk of columns of sixteen rows at a
// time, its chunks of tokens all of them.
#pragma once

#include "ops/cuda/state_tile.cuh"

namespace replayssm::cuda {

// From or to a row in global memory, where neighbouring rows need no other order.
__device__ __forceinline__ EightColumns<float> load_global_columns(const float* from) {
  return load_turned(from, false);
}
__device__ __forceinline__ void store_global_columns(const EightColumns<float>& columns,
                                                     float* to) {
  const float(&x)[8] = columns.x;
  reinterpret_cast<float4*>(to)[0] = float4{x[0], x[1], x[2], x[3]};
  reinterpret_cast<float4*>(to)[1] = float4{x[4], x[5], x[6], x[7]};
}

// Folds `records` records, whose keys are in the scratch (write_fold_keys), into chunk `chunk` of
// sixteen rows; `decay` is the block's.
template <class Layout>
__device__ __forceinline__ void fold_columns(const CorrectionFragments<Layout> (&d)[1],
                                             const typename Layout::Scratch& scratch, int records,
                                             float decay, int chunk,
                                             EightColumns<float> (&upper)[1],
                                             EightColumns<float> (&lower)[1]) {
  const auto keys = [&](int step, int i) {
    const uint2 k = *reinterpret_cast<const uint2*>(scratch.fold_keys[4 * chunk + i] + 64 * step +
                                                    2 * ptx::lane());
    return KeyFragment{{k.x, k.y}, {0, 0}};
  };
  fold_chunk<Layout, 1>(d, decay, nullptr, records, chunk, keys, upper, lower);
}

// Rows g and g + 8 of sixteen, eight columns of each chunk a lane, from 32 chunk + 8 t on.
struct FloatTile {
  EightColumns<float> upper[kChunks][1], lower[kChunks][1];

  __device__ __forceinline__ ChunkOperand<3> operand(int chunk) const {
    return operand_of(upper[chunk][0], lower[chunk][0]);
  }
};

// From or to sixteen rows in global memory.
__device__ __forceinline__ FloatTile load_tile(const float* rows) {
  const float* const from = rows + (ptx::lane() >> 2) * kKeyDim + (ptx::lane() & 3) * 8;
  FloatTile tile;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    tile.upper[c][0] = load_global_columns(from + c * kChunkColumns);
    tile.lower[c][0] = load_global_columns(from + 8 * kKeyDim + c * kChunkColumns);
  }
  return tile;
}
__device__ __forceinline__ void store_tile(const FloatTile& tile, float* rows) {
  float* const to = rows + (ptx::lane() >> 2) * kKeyDim + (ptx::lane() & 3) * 8;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    store_global_columns(tile.upper[c][0], to + c * kChunkColumns);
    store_global_columns(tile.lower[c][0], to + 8 * kKeyDim + c * kChunkColumns);
  }
}

// As fold_tiles of a bf16 state; the weights are in the scratch.
template <class Layout>
__device__ __forceinline__ void fold_tile(const StagedRecords<Layout>& staged, int records,
                                          int first_value, const typename Layout::Scratch& scratch,
                                          float decay, FloatTile& state) {
  const CorrectionFragments<Layout> d[1] = {
      load_corrections<Layout>(staged, scratch.weights[0], records, first_value)};
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    fold_columns<Layout>(d, scratch, records, decay, c, state.upper[c], state.lower[c]);
  }
}
// The same of a bf16 state.
template <class Layout>
__device__ __forceinline__ void fold_tile(const StagedRecords<Layout>& staged, int records,
                                          int first_value, const typename Layout::Scratch& scratch,
                                          float decay, StateTile& state) {
  StateTile tiles[1] = {state};
  fold_tiles<Layout>(
      staged, records, first_value, scratch, decay,
      [&](int record) { return scratch.weights[0][record]; }, tiles);
  state = tiles[0];
}

// Sixteen rows of a state of either type.
template <class State>
using TileOf = std::conditional_t<sizeof(State) == 2, StateTile, FloatTile>;

}  // namespace replayssm::cuda
