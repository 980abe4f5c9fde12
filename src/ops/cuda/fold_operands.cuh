// Folding the stage's records into a state, S' = S diag(A) + sum_j d_j k~_j^T with k~_j the
// record's normalised key decayed to the end of the block: a rank-n update in registers, n in steps
// of 16 on the matrix units for bf16 states, in fp32 FMAs for fp32 states. window_step and fold
// share it, so they write the same bits.
#pragma once

#include "ops/cuda/channel_decay.cuh"

namespace replayssm::cuda {

// Two bf16 in one register.
__device__ __forceinline__ uint32_t pair_of(bf16 low, bf16 high) {
  return static_cast<uint32_t>(low.bits) | static_cast<uint32_t>(high.bits) << 16;
}

// GDN: per-record weights to this warp's scratch, where folding reads them.
template <class Layout>
__device__ __forceinline__ void write_weights(const HeadDecays<Layout>& decays, float* weights) {
  ptx::sync_warp();  // the previous unit's readers are done
#pragma unroll
  for (int i = 0; i < HeadDecays<Layout>::kSegments; ++i) {
    const int record = 32 * i + ptx::lane();
    if (record < Layout::kSlots) weights[record] = decays.weight[i];
  }
  ptx::sync_warp();
}

// bf16 states. The corrections of 16 value rows as A operand, 16 records a step. GDN weights are
// multiplied in and the product is kept as two bf16 numbers; KDA keeps d as stored, its weights are
// in the keys.
template <class Layout>
struct CorrectionFragments {
  static constexpr int kSteps = (Layout::kSlots + 15) / 16;
  uint32_t high[kSteps][4];
  uint32_t low[Layout::kKda ? 1 : kSteps][4];
};

template <class Layout>
__device__ __forceinline__ CorrectionFragments<Layout> load_corrections(
    const StagedRecords<Layout>& staged, const float* weights, int records, int first_value) {
  const int g = ptx::lane() >> 2, t = ptx::lane() & 3;
  CorrectionFragments<Layout> f;
#pragma unroll
  for (int step = 0; step < CorrectionFragments<Layout>::kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int j = 16 * step + 2 * t + (i >> 1) * 8;
      const bf16* const d = staged.corrections + j * kValueDim + first_value + g + (i & 1) * 8;
      const bf16 zero{0};
      const bf16 d0 = j < records ? d[0] : zero;
      const bf16 d1 = j + 1 < records ? d[kValueDim] : zero;
      if constexpr (Layout::kKda) {
        f.high[step][i] = pair_of(d0, d1);
      } else {
        const float w0 = weights[j] * widen(d0), w1 = weights[j + 1] * widen(d1);
        f.high[step][i] = ptx::pack_bf16(w0, w1);
        f.low[step][i] =
            ptx::pack_bf16(w0 - low_half(f.high[step][i]), w1 - high_half(f.high[step][i]));
      }
    }
  }
  return f;
}

// bf16 states. B operand of 16 records and 8 columns, one of them this lane's: low is used by KDA.
struct KeyFragment {
  uint32_t high[2];
  uint32_t low[2];
};

template <class Layout>
__device__ __forceinline__ KeyFragment load_keys(const StagedRecords<Layout>& staged, int records,
                                                 int step, int column) {
  const int t = ptx::lane() & 3;
  KeyFragment f{};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int j = 16 * step + 2 * t + 8 * i;
    if constexpr (Layout::kKda) {
      const uint32_t w0 = j < records ? __float_as_uint(staged.gates[j * kKeyDim + column]) : 0;
      const uint32_t w1 =
          j + 1 < records ? __float_as_uint(staged.gates[(j + 1) * kKeyDim + column]) : 0;
      f.high[i] = (w0 >> 16) | (w1 & 0xffff0000u);
      f.low[i] = (w0 & 0xffffu) | (w1 << 16);
    } else {
      const bf16 zero{0};
      f.high[i] = pair_of(j < records ? staged.keys[j * kKeyDim + column] : zero,
                          j + 1 < records ? staged.keys[(j + 1) * kKeyDim + column] : zero);
    }
  }
  return f;
}

// bf16 states. Folds into a block of 16 rows and 32 columns, held as loaded: upper holds row g of
// it, lower row g + 8, both columns 8 t .. 8 t + 7 of `chunk`.
template <class Layout, int kTiles>
__device__ __forceinline__ void fold_chunk(const StagedRecords<Layout>& staged,
                                           const CorrectionFragments<Layout> (&d)[kTiles],
                                           float head_decay, const float* channel_decay,
                                           int records, int chunk, uint4 (&upper)[kTiles],
                                           uint4 (&lower)[kTiles]) {
  const int g = ptx::lane() >> 2, t = ptx::lane() & 3;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // In pair i a lane holds columns 8 t + 2 i and 8 t + 2 i + 1: those are what the mma calls
    // columns 2 t and 2 t + 1, so its column g is this one.
    const int column = chunk * kChunkColumns + (g >> 1) * 8 + 2 * i + (g & 1);
    const int own = chunk * kChunkColumns + t * 8 + 2 * i;
    const float a0 = Layout::kKda ? channel_decay[own] : head_decay;
    const float a1 = Layout::kKda ? channel_decay[own + 1] : head_decay;
    float c[kTiles][4];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      const uint32_t u = reinterpret_cast<const uint32_t*>(&upper[m])[i];
      const uint32_t l = reinterpret_cast<const uint32_t*>(&lower[m])[i];
      c[m][0] = a0 * low_half(u);
      c[m][1] = a1 * high_half(u);
      c[m][2] = a0 * low_half(l);
      c[m][3] = a1 * high_half(l);
    }
#pragma unroll
    for (int step = 0; step < CorrectionFragments<Layout>::kSteps; ++step) {
      if (16 * step < records) {
        const KeyFragment k = load_keys<Layout>(staged, records, step, column);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          const uint32_t(&h)[4] = d[m].high[step];
          ptx::mma(c[m], h[0], h[1], h[2], h[3], k.high[0], k.high[1]);
          if constexpr (Layout::kKda) {
            ptx::mma(c[m], h[0], h[1], h[2], h[3], k.low[0], k.low[1]);
          } else {
            const uint32_t(&l)[4] = d[m].low[step];
            ptx::mma(c[m], l[0], l[1], l[2], l[3], k.high[0], k.high[1]);
          }
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      reinterpret_cast<uint32_t*>(&upper[m])[i] = ptx::pack_bf16(c[m][0], c[m][1]);
      reinterpret_cast<uint32_t*>(&lower[m])[i] = ptx::pack_bf16(c[m][2], c[m][3]);
    }
  }
}

__device__ __forceinline__ float4 widen4(const bf16* x) {
  const uint2 u = *reinterpret_cast<const uint2*>(x);
  return {low_half(u.x), high_half(u.x), low_half(u.y), high_half(u.y)};
}

// s = a s, componentwise.
__device__ __forceinline__ float4 scaled(const float4& s, const float4& a) {
  return {s.x * a.x, s.y * a.y, s.z * a.z, s.w * a.w};
}
__device__ __forceinline__ void add_outer(float4& s, float d, const float4& k) {
  s.x = fmaf(d, k.x, s.x);
  s.y = fmaf(d, k.y, s.y);
  s.z = fmaf(d, k.z, s.z);
  s.w = fmaf(d, k.w, s.w);
}

// fp32 states. Folds into four value rows (the first of them `value`), columns 4 lane ..
// 4 lane + 3, already multiplied by the block's decay. Records ascending.
template <class Layout>
__device__ __forceinline__ void fold_rows(const StagedRecords<Layout>& staged, const float* weights,
                                          int records, int value, float4 (&s)[4]) {
  const int column = ptx::lane() * 4;
#pragma unroll 4
  for (int j = 0; j < records; ++j) {
    float4 d = *reinterpret_cast<const float4*>(staged.corrections + j * kValueDim + value);
    float4 k;
    if constexpr (Layout::kKda) {
      k = *reinterpret_cast<const float4*>(staged.gates + j * kKeyDim + column);
    } else {
      k = widen4(staged.keys + j * kKeyDim + column);
      const float w = weights[j];
      d = scaled(d, {w, w, w, w});
    }
    add_outer(s[0], d.x, k);
    add_outer(s[1], d.y, k);
    add_outer(s[2], d.z, k);
    add_outer(s[3], d.w, k);
  }
}

}  // namespace replayssm::cuda
