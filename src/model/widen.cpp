#include "model/widen.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/widen.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "model/dot_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace replayssm {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void widen_rows(const T* in, std::size_t stride, std::size_t rows, std::size_t cols, float* out) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t r = 0; r < rows; ++r, in += stride, out += cols) {
    std::size_t i = 0;
    for (; i + lanes <= cols; i += lanes) hn::StoreU(load_widened(d, in + i), d, out + i);
    if (i == cols) continue;
    T tail[HWY_MAX_BYTES / sizeof(float)] = {};
    HWY_ALIGN float wide[HWY_MAX_BYTES / sizeof(float)];
    std::memcpy(tail, in + i, (cols - i) * sizeof(T));
    hn::Store(load_widened(d, tail), d, wide);
    std::memcpy(out + i, wide, (cols - i) * sizeof(float));
  }
}

void widen_f32(const void* in, std::size_t at, std::size_t stride, std::size_t rows,
               std::size_t cols, float* out) {
  widen_rows(static_cast<const float*>(in) + at, stride, rows, cols, out);
}
void widen_bf16(const void* in, std::size_t at, std::size_t stride, std::size_t rows,
                std::size_t cols, float* out) {
  widen_rows(static_cast<const bf16*>(in) + at, stride, rows, cols, out);
}
void widen_f16(const void* in, std::size_t at, std::size_t stride, std::size_t rows,
               std::size_t cols, float* out) {
  widen_rows(static_cast<const f16*>(in) + at, stride, rows, cols, out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace replayssm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replayssm {

HWY_EXPORT(widen_f32);
HWY_EXPORT(widen_bf16);
HWY_EXPORT(widen_f16);

void widen_block(const WeightMatrix& weight, int first_row, int rows, int first_col, int cols,
                 float* out) {
  const auto stride = static_cast<std::size_t>(weight.cols);
  const std::size_t at =
      static_cast<std::size_t>(first_row) * stride + static_cast<std::size_t>(first_col);
  const auto n = static_cast<std::size_t>(rows);
  const auto width = static_cast<std::size_t>(cols);
  switch (weight.type) {
    case DType::f32:
      return HWY_DYNAMIC_DISPATCH(widen_f32)(weight.data, at, stride, n, width, out);
    case DType::bf16:
      return HWY_DYNAMIC_DISPATCH(widen_bf16)(weight.data, at, stride, n, width, out);
    case DType::f16:
      return HWY_DYNAMIC_DISPATCH(widen_f16)(weight.data, at, stride, n, width, out);
    case DType::f64:
      return;  // no WeightMatrix has it
  }
}

}  // namespace replayssm
#endif  // HWY_ONCE
