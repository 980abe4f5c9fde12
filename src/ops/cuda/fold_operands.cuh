// Folding the stage's records into a state, S' = S diag(A) + sum_j d_j k~_j^T with k~_j the
// record's normalised key decayed to the end of the block: a rank-n update in registers, n in steps
// of 16 on the matrix units; in FMAs for KDA with fp32 states. Every operation that folds shares
// it, so they write the same bits.
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

// The corrections of 16 value rows as A operand, 16 records a step, as sums of bf16 numbers. GDN
// weights are multiplied in and the product is kept as two numbers, beside fp32 states as three;
// KDA keeps d as stored, its weights are in the keys.
template <class Layout>
struct CorrectionFragments {
  static constexpr int kSteps = (Layout::kSlots + 15) / 16;
  static constexpr int kParts = Layout::kKda ? 1 : Layout::kStateParts == 1 ? 2 : 3;
  uint32_t parts[kSteps][4][kParts];
};

// Of the tile's value rows from `first_value` on; a warp of eight rows has only the upper half.
template <class Layout>
__device__ __forceinline__ CorrectionFragments<Layout> load_corrections(
    const StagedRecords<Layout>& staged, const float* weights, int records, int first_value) {
  using State = typename Layout::State;
  const int g = ptx::lane() >> 2, t = ptx::lane() & 3;
  CorrectionFragments<Layout> f{};
#pragma unroll
  for (int step = 0; step < CorrectionFragments<Layout>::kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (Layout::kRowsPerWarp < 16 && (i & 1) != 0) continue;
      const int j = 16 * step + 2 * t + (i >> 1) * 8;
      const int value = first_value + g + (i & 1) * 8;
      const auto d = [&](int record) {
        const int at =
            Layout::kTiled ? swizzled<kValueDim, State>(record, value) : record * kValueDim + value;
        return record < records ? widen(staged.corrections[at]) : 0.0f;
      };
      const float d0 = d(j), d1 = d(j + 1);
      if constexpr (Layout::kKda) {
        split(d0, d1, f.parts[step][i]);
      } else {
        split(weights[j] * d0, weights[j + 1] * d1, f.parts[step][i]);
      }
    }
  }
  return f;
}

// B operand of 16 records and 8 columns, one of them this lane's: low is used by KDA.
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

// Eight neighbouring columns of a row of the state, in pairs.
template <class State>
struct EightColumns;
template <>
struct EightColumns<bf16> {
  uint4 words;

  __device__ __forceinline__ float2 pair(int i) const {
    const uint32_t word = reinterpret_cast<const uint32_t*>(&words)[i];
    return {low_half(word), high_half(word)};
  }
  __device__ __forceinline__ void set_pair(int i, float x0, float x1) {
    reinterpret_cast<uint32_t*>(&words)[i] = ptx::pack_bf16(x0, x1);
  }
};
template <>
struct EightColumns<float> {
  float x[8];

  __device__ __forceinline__ float2 pair(int i) const { return {x[2 * i], x[2 * i + 1]}; }
  __device__ __forceinline__ void set_pair(int i, float x0, float x1) {
    x[2 * i] = x0;
    x[2 * i + 1] = x1;
  }
};

__device__ __forceinline__ EightColumns<bf16> load_columns(const bf16* from) {
  return {*reinterpret_cast<const uint4*>(from)};
}
__device__ __forceinline__ void store_columns(const EightColumns<bf16>& columns, bf16* to) {
  *reinterpret_cast<uint4*>(to) = columns.words;
}
// Two neighbouring rows of an fp32 state read together would meet in one bank, so odd ones read the
// two halves of the eight columns the other way round, and get them in that order.
__device__ __forceinline__ EightColumns<float> load_turned(const float* from, bool odd) {
  const int early = odd ? 4 : 0;
  const float4 first = *reinterpret_cast<const float4*>(from + early);
  const float4 second = *reinterpret_cast<const float4*>(from + (early ^ 4));
  return {{first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w}};
}
// The same in, or from, natural order. A lane's rows are odd or even with lane / 4.
__device__ __forceinline__ EightColumns<float> load_columns(const float* from) {
  const bool odd = (ptx::lane() & 4) != 0;
  const uint32_t swap = odd ? ~0u : 0u;
  const EightColumns<float> turned = load_turned(from, odd);
  EightColumns<float> columns;
#pragma unroll
  for (int i = 0; i < 8; ++i) columns.x[i] = choose(swap, turned.x[i ^ 4], turned.x[i]);
  return columns;
}
__device__ __forceinline__ void store_columns(const EightColumns<float>& columns, float* to) {
  const bool odd = (ptx::lane() & 4) != 0;
  const uint32_t swap = odd ? ~0u : 0u;
  const int early = odd ? 4 : 0;
  float x[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = choose(swap, columns.x[i ^ 4], columns.x[i]);
  *reinterpret_cast<float4*>(to + early) = float4{x[0], x[1], x[2], x[3]};
  *reinterpret_cast<float4*>(to + (early ^ 4)) = float4{x[4], x[5], x[6], x[7]};
}

// In pair i a lane holds columns 8 t + 2 i and 8 t + 2 i + 1 of a chunk: those are what the mma
// calls columns 2 t and 2 t + 1, so its column g is this one.
__device__ __forceinline__ int fold_column(int chunk, int i) {
  const int g = ptx::lane() >> 2;
  return chunk * kChunkColumns + (g >> 1) * 8 + 2 * i + (g & 1);
}

// Folds into a block of 16 rows and 32 columns, held as loaded: upper holds row g of it, lower row
// g + 8, both columns 8 t .. 8 t + 7 of `chunk`.
//
// The matrix units cut sums off instead of rounding them. So what is added to an fp32 state is
// summed by itself: otherwise every fold would make the whole state a little smaller. And the
// largest parts are summed apart from the others: of a single record both sums are exact, so that
// their sum is the rounded product, as packed_step has it.
// keys(step, i) is the B operand of 16 records and the columns fold_column(chunk, i).
template <class Layout, int kTiles, class Keys>
__device__ __forceinline__ void fold_chunk(const CorrectionFragments<Layout> (&d)[kTiles],
                                           float head_decay, const float* channel_decay,
                                           int records, int chunk, Keys&& keys,
                                           EightColumns<typename Layout::State> (&upper)[kTiles],
                                           EightColumns<typename Layout::State> (&lower)[kTiles]) {
  constexpr int kParts = CorrectionFragments<Layout>::kParts;
  constexpr bool kApart = Layout::kStateParts > 1;
  const int t = ptx::lane() & 3;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int own = chunk * kChunkColumns + t * 8 + 2 * i;
    const float a0 = Layout::kKda ? channel_decay[own] : head_decay;
    const float a1 = Layout::kKda ? channel_decay[own + 1] : head_decay;
    float c[kTiles][4] = {};
    [[maybe_unused]] float large[kTiles][4] = {};
    if constexpr (!kApart) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        const float2 u = upper[m].pair(i), l = lower[m].pair(i);
        c[m][0] = a0 * u.x;
        c[m][1] = a1 * u.y;
        c[m][2] = a0 * l.x;
        c[m][3] = a1 * l.y;
      }
    }
#pragma unroll
    for (int step = 0; step < CorrectionFragments<Layout>::kSteps; ++step) {
      if (step == 0 || 16 * step < records) {
        const KeyFragment k = keys(step, i);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          const uint32_t(&x)[4][kParts] = d[m].parts[step];
#pragma unroll
          for (int n = 0; n < kParts; ++n) {
            const int p = kApart ? kParts - 1 - n : n;
            ptx::mma(kApart && p == 0 ? large[m] : c[m], x[0][p], x[1][p], x[2][p], x[3][p],
                     k.high[0], k.high[1]);
          }
          if constexpr (Layout::kKda) {
            ptx::mma(c[m], x[0][0], x[1][0], x[2][0], x[3][0], k.low[0], k.low[1]);
          }
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      if constexpr (kApart) {
        const float2 u = upper[m].pair(i), l = lower[m].pair(i);
        c[m][0] = fmaf(a0, u.x, large[m][0] + c[m][0]);
        c[m][1] = fmaf(a1, u.y, large[m][1] + c[m][1]);
        c[m][2] = fmaf(a0, l.x, large[m][2] + c[m][2]);
        c[m][3] = fmaf(a1, l.y, large[m][3] + c[m][3]);
      }
      upper[m].set_pair(i, c[m][0], c[m][1]);
      lower[m].set_pair(i, c[m][2], c[m][3]);
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

// KDA with fp32 states. Folds into four value rows (the first of them `value`), columns 4 lane ..
// 4 lane + 3, already multiplied by the block's decay. Records ascending.
template <class Layout>
__device__ __forceinline__ void fold_rows(const StagedRecords<Layout>& staged, int records,
                                          int value, float4 (&s)[4]) {
  const int column = ptx::lane() * 4;
#pragma unroll 4
  for (int j = 0; j < records; ++j) {
    const float4 d = *reinterpret_cast<const float4*>(staged.corrections + j * kValueDim + value);
    const float4 k = *reinterpret_cast<const float4*>(staged.gates + j * kKeyDim + column);
    add_outer(s[0], d.x, k);
    add_outer(s[1], d.y, k);
    add_outer(s[2], d.z, k);
    add_outer(s[3], d.w, k);
  }
}

}  // namespace replayssm::cuda
