#include "model/row_dot.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/row_dot.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "model/dot_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace replayssm {
namespace HWY_NAMESPACE {
namespace {

template <class T>
struct Panel {
  const float* x;
  std::size_t x_stride;
  const T* w;
  std::size_t k;
  float* out;
  std::size_t out_stride;
};

template <int R, int C, class T>
HWY_INLINE void tile(const Panel<T>& p, int m, int n) {
  const T* w[C];
  for (int c = 0; c < C; ++c) w[c] = p.w + static_cast<std::size_t>(n + c) * p.k;
  float sums[R][C];
  dot_tile<R, C, T>(p.x + static_cast<std::size_t>(m) * p.x_stride, p.x_stride, w, p.k, sums);
  for (int r = 0; r < R; ++r) {
    float* row = p.out + static_cast<std::size_t>(m + r) * p.out_stride;
    for (int c = 0; c < C; ++c) row[n + c] = sums[r][c];
  }
}

// Outputs in tiles of C; all rows of x pass over a tile's weights while they are in cache.
template <int R, int C, class T>
void columns(const Panel<T>& p, int m, int first, int last) {
  int n = first;
  for (; n + C <= last; n += C) tile<R, C, T>(p, m, n);
  for (; n < last; ++n) tile<R, 1, T>(p, m, n);
}

// Tile shapes are the largest whose sums fit in 16 vector registers with room for the operands.
template <class T>
void rows_times_weight(const Panel<T>& p, int rows, int first, int last) {
  switch (rows) {
    case 1:
      return columns<1, 8, T>(p, 0, first, last);
    case 2:
      return columns<2, 4, T>(p, 0, first, last);
    case 3:
      return columns<3, 4, T>(p, 0, first, last);
    case 4:
      return columns<4, 3, T>(p, 0, first, last);
    default:
      break;
  }
  constexpr int kOutputs = 3;
  for (int n = first; n < last; n += kOutputs) {
    const int end = n + kOutputs < last ? n + kOutputs : last;
    int m = 0;
    for (; m + 4 <= rows; m += 4) columns<4, kOutputs, T>(p, m, n, end);
    for (; m < rows; ++m) columns<1, kOutputs, T>(p, m, n, end);
  }
}

void row_dot_f32(const float* x, std::size_t x_stride, int rows, const float* w, std::size_t k,
                 int first, int last, float* out, std::size_t out_stride) {
  rows_times_weight(Panel<float>{x, x_stride, w, k, out, out_stride}, rows, first, last);
}
void row_dot_bf16(const float* x, std::size_t x_stride, int rows, const bf16* w, std::size_t k,
                  int first, int last, float* out, std::size_t out_stride) {
  rows_times_weight(Panel<bf16>{x, x_stride, w, k, out, out_stride}, rows, first, last);
}
void row_dot_f16(const float* x, std::size_t x_stride, int rows, const std::uint16_t* w,
                 std::size_t k, int first, int last, float* out, std::size_t out_stride) {
  rows_times_weight(Panel<f16>{x, x_stride, reinterpret_cast<const f16*>(w), k, out, out_stride},
                    rows, first, last);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace replayssm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replayssm {

HWY_EXPORT(row_dot_f32);
HWY_EXPORT(row_dot_bf16);
HWY_EXPORT(row_dot_f16);

void row_dot(const float* x, std::size_t x_stride, int rows, const WeightMatrix& weight, int first,
             int last, float* out, std::size_t out_stride) {
  const auto k = static_cast<std::size_t>(weight.cols);
  switch (weight.type) {
    case DType::f32:
      return HWY_DYNAMIC_DISPATCH(row_dot_f32)(x, x_stride, rows,
                                               static_cast<const float*>(weight.data), k, first,
                                               last, out, out_stride);
    case DType::bf16:
      return HWY_DYNAMIC_DISPATCH(row_dot_bf16)(x, x_stride, rows,
                                                static_cast<const bf16*>(weight.data), k, first,
                                                last, out, out_stride);
    case DType::f16:
      return HWY_DYNAMIC_DISPATCH(row_dot_f16)(x, x_stride, rows,
                                               static_cast<const std::uint16_t*>(weight.data), k,
                                               first, last, out, out_stride);
    case DType::f64:
      return;  // no WeightMatrix has it
  }
}

}  // namespace replayssm
#endif  // HWY_ONCE
