// The one dot product of the CPU backend, compiled once for each instruction set: several rows of
// fp32 activations against several rows of stored weights (or keys) at a time.
//
// The value of an element depends on its two rows and on k alone. The lanes of one accumulator walk
// along k in ascending order, a remainder is padded with zeros to one more vector, and the lanes
// are summed at the end in an order that the instruction set fixes. How many rows share a tile only
// decides what stays in registers, so it changes no bit.
#if defined(REPLAYSSM_MODEL_DOT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REPLAYSSM_MODEL_DOT_TILE_INL_H_
#undef REPLAYSSM_MODEL_DOT_TILE_INL_H_
#else
#define REPLAYSSM_MODEL_DOT_TILE_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/bfloat16.h"

HWY_BEFORE_NAMESPACE();
namespace replayssm {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

// IEEE binary16 as stored; a type of its own beside bf16.
struct f16 {
  std::uint16_t bits;
};

// One vector of floats from stored elements. Addresses need no alignment.
HWY_INLINE FloatVec load_widened(FloatTag d, const float* p) { return hn::LoadU(d, p); }
HWY_INLINE FloatVec load_widened(FloatTag d, const bf16* p) {
  const hn::Rebind<std::uint16_t, FloatTag> d16;
  const hn::Rebind<std::uint32_t, FloatTag> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}
HWY_INLINE FloatVec load_widened(FloatTag d, const f16* p) {
  const hn::Rebind<hwy::float16_t, FloatTag> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
}

// Asks for the cache line that is `ahead` elements after p. A hint: the address need not exist.
template <class T>
HWY_INLINE void prefetch(const T* p, std::size_t ahead) {
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(p) + ahead * sizeof(T);
  hwy::Prefetch(reinterpret_cast<const unsigned char*>(address));
}

struct FetchNothing {
  HWY_INLINE void operator()(std::size_t) const {}
};

// acc[r][c] += x[r * x_stride + k] * w[c][k] lane by lane, for k in [0, count).
// Only the last call for a sum may have a count that is not a multiple of the lanes.
// fetch(k) is called before the vectors at k are used.
template <int R, int C, class T, class Fetch = FetchNothing>
HWY_INLINE void accumulate_tile(const float* HWY_RESTRICT x, std::size_t x_stride,
                                const T* const (&w)[C], std::size_t count, FloatVec (&acc)[R][C],
                                const Fetch& fetch = {}) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    fetch(i);
    FloatVec wv[C];
    for (int c = 0; c < C; ++c) wv[c] = load_widened(d, w[c] + i);
    for (int r = 0; r < R; ++r) {
      const FloatVec xv = hn::LoadU(d, x + static_cast<std::size_t>(r) * x_stride + i);
      for (int c = 0; c < C; ++c) acc[r][c] = hn::MulAdd(xv, wv[c], acc[r][c]);
    }
  }
  if (i == count) return;
  const std::size_t rest = count - i;
  float x_tail[R][HWY_MAX_BYTES / sizeof(float)] = {};
  T w_tail[C][HWY_MAX_BYTES / sizeof(float)] = {};
  for (int r = 0; r < R; ++r) {
    std::memcpy(x_tail[r], x + static_cast<std::size_t>(r) * x_stride + i, rest * sizeof(float));
  }
  for (int c = 0; c < C; ++c) std::memcpy(w_tail[c], w[c] + i, rest * sizeof(T));
  for (int r = 0; r < R; ++r) {
    const FloatVec xv = hn::LoadU(d, x_tail[r]);
    for (int c = 0; c < C; ++c) acc[r][c] = hn::MulAdd(xv, load_widened(d, w_tail[c]), acc[r][c]);
  }
}

// The value of an element, from its accumulator.
HWY_INLINE float sum_lanes(FloatVec acc) {
  const FloatTag d;
  return hn::GetLane(hn::SumOfLanes(d, acc));
}

// sums[r][c] = sum_k x[r * x_stride + k] * w[c][k] for R rows of x and C rows of w.
template <int R, int C, class T>
HWY_INLINE void dot_tile(const float* HWY_RESTRICT x, std::size_t x_stride, const T* const (&w)[C],
                         std::size_t k, float (&sums)[R][C]) {
  const FloatTag d;
  FloatVec acc[R][C];
  for (auto& row : acc) {
    for (FloatVec& v : row) v = hn::Zero(d);
  }
  accumulate_tile<R, C>(x, x_stride, w, k, acc);
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) sums[r][c] = sum_lanes(acc[r][c]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace replayssm
HWY_AFTER_NAMESPACE();

#endif  // REPLAYSSM_MODEL_DOT_TILE_INL_H_
