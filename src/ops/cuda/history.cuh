// What the live records contribute to the two products of a token:
//   y += sum_j coefficient_k[j] d_j      x += sum_j coefficient_q[j] d_j
// with coefficient[j] = decay from record j to now * (k_j . input), norms included.
#pragma once

#include "ops/cuda/inputs.cuh"

namespace replayssm::cuda {

template <class Layout>
__device__ __forceinline__ StagedRecords<Layout> records_from(typename Layout::Stage& stage,
                                                              int first) {
  return {stage.keys + first * kKeyDim, stage.corrections + first * kValueDim,
          stage.gates + first * Layout::kGateWidth, stage.key_scales + first};
}

// GDN: how much of each record and of the checkpoint is left. weight[i] of lane j belongs to record
// 32 i + j.
template <class Layout>
struct HeadDecays {
  static constexpr int kSegments = Layout::kRecords <= 32 ? 1 : Layout::kRecords / 32;
  float weight[kSegments];  // key norm included; 0 for dead records
  float total;              // of the checkpoint
};

// `newest` is a factor of every decay: the current token's own, or 1 in a fold.
template <class Layout>
__device__ __forceinline__ HeadDecays<Layout> head_decays(const StagedRecords<Layout>& staged,
                                                          int records, float newest) {
  HeadDecays<Layout> d;
  float newer = newest;  // decay over everything newer than the segment
#pragma unroll
  for (int i = HeadDecays<Layout>::kSegments - 1; i >= 0; --i) {
    const int record = 32 * i + ptx::lane();
    const bool live = record < records;
    const int slot = record < Layout::kSlots ? record : 0;
    const float suffix = suffix_product(live ? staged.gates[slot] : 1.0f);
    const float above = ptx::shuffle_down(suffix, 1);
    const float after = ptx::lane() == 31 ? 1.0f : above;
    d.weight[i] = live ? after * newer * staged.key_scales[slot] : 0.0f;
    newer = ptx::shuffle(suffix, 0) * newer;
  }
  d.total = newer;
  return d;
}

// GDN: writes this warp's coefficients, [record][k, q].
template <class Layout>
__device__ __forceinline__ void write_coefficients(const typename Layout::Stage& stage,
                                                   const InputFragments& x, const Norms& norms,
                                                   const HeadDecays<Layout>& decays, int records,
                                                   float* coefficients) {
  constexpr int kRecords = Layout::kRecords;
  const int g = ptx::lane() >> 2, t = ptx::lane() & 3;
  float products[kRecords / 4];
  ring_products<kRecords>(stage.keys, x, records, products);
  const float norm = g == 0 ? norms.key : norms.query;
  static_assert(kRecords <= 32);
  ptx::sync_warp();  // the previous unit's readers are done
#pragma unroll
  for (int i = 0; i < kRecords / 4; ++i) {
    const int record = (i >> 1) * 8 + 2 * t + (i & 1);
    const float weight = ptx::shuffle(decays.weight[0], record);
    if (g < 2) coefficients[2 * record + g] = record < records ? products[i] * weight * norm : 0.0f;
  }
  ptx::sync_warp();
}

// Adds the history of one value row: `corrections` points at that row's d of record 0.
template <class Layout>
__device__ __forceinline__ void add_history(const typename Layout::State* corrections, int records,
                                            const float* coefficients, float& y, float& x) {
#pragma unroll
  for (int first = 0; first < Layout::kRecords; first += 8) {
    if (Layout::kRecords > 16 && first >= records) break;  // see ring_products
#pragma unroll
    for (int j = first; j < first + 8; j += 2) {
      const float4 c = *reinterpret_cast<const float4*>(coefficients + 2 * j);
      const float d0 = j < records ? widen(corrections[j * kValueDim]) : 0.0f;
      const float d1 = j + 1 < records ? widen(corrections[(j + 1) * kValueDim]) : 0.0f;
      y = fmaf(c.x, d0, y);
      x = fmaf(c.y, d0, x);
      y = fmaf(c.z, d1, y);
      x = fmaf(c.w, d1, x);
    }
  }
}

}  // namespace replayssm::cuda
