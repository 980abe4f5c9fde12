#include "model/norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "model/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace replayssm {
namespace HWY_NAMESPACE {
namespace {

// 1 / sqrt(mean(x^2) + eps); kRounded: of x rounded to bf16.
template <bool kRounded>
float inverse_rms(const float* x, std::size_t width, double eps) {
  const MathTag d;
  MathVec sum = hn::Zero(d);
  for_each_vector(width, [&](auto load, auto) {
    const MathVec v = stored<kRounded>(d, load(x));
    sum = hn::MulAdd(v, v, sum);
  });
  const float mean = hn::GetLane(hn::SumOfLanes(d, sum)) / static_cast<float>(width);
  return 1.0f / std::sqrt(mean + static_cast<float>(eps));
}

template <bool kBf16>
void rms_norm_as(ConstRows x, int rows, int width, const float* scale, double eps, Rows out) {
  const MathTag d;
  const auto n = static_cast<std::size_t>(width);
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
    const float* in = x.data + r * x.stride;
    float* to = out.data + r * out.stride;
    const MathVec inverse = hn::Set(d, inverse_rms<false>(in, n, eps));
    for_each_vector(n, [&](auto load, auto store) {
      store(stored<kBf16>(d, hn::Mul(hn::Mul(load(in), inverse), load(scale))), to);
    });
  }
}

// Each row of x, rounded to bf16 with kBf16, and its gate's row: finish(values, 1 / rms, scale,
// gate) gives what is stored.
template <bool kBf16, class Finish>
void gated_rows(ConstRows x, ConstRows gate, int rows, int width, const float* scale, double eps,
                Rows out, Finish&& finish) {
  const MathTag d;
  const auto n = static_cast<std::size_t>(width);
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
    const float* in = x.data + r * x.stride;
    const float* z = gate.data + r * gate.stride;
    float* to = out.data + r * out.stride;
    const MathVec inverse = hn::Set(d, inverse_rms<kBf16>(in, n, eps));
    for_each_vector(n, [&](auto load, auto store) {
      store(stored<kBf16>(d, finish(stored<kBf16>(d, load(in)), inverse, load(scale), load(z))),
            to);
    });
  }
}

// Rounds the normed and the scaled values too, as Qwen's models do.
template <bool kBf16>
void gated_rms_norm_as(ConstRows x, ConstRows gate, int rows, int width, const float* scale,
                       double eps, Rows out) {
  const MathTag d;
  gated_rows<kBf16>(x, gate, rows, width, scale, eps, out,
                    [d](MathVec values, MathVec inverse, MathVec scales, MathVec z) {
                      const MathVec normed = stored<kBf16>(d, hn::Mul(values, inverse));
                      return hn::Mul(stored<kBf16>(d, hn::Mul(scales, normed)), silu(d, z));
                    });
}

// Rounds the result only.
template <bool kBf16>
void sigmoid_gated_rms_norm_as(ConstRows x, ConstRows gate, int rows, int width, const float* scale,
                               double eps, Rows out) {
  const MathTag d;
  gated_rows<kBf16>(x, gate, rows, width, scale, eps, out,
                    [d](MathVec values, MathVec inverse, MathVec scales, MathVec z) {
                      return hn::Mul(hn::Mul(scales, hn::Mul(values, inverse)), sigmoid(d, z));
                    });
}

template <bool kBf16>
void silu_product_as(const float* gate, const float* up, std::size_t count, float* out) {
  const MathTag d;
  for_each_vector(count, [&](auto load, auto store) {
    const MathVec activated = stored<kBf16>(d, silu(d, load(gate)));
    store(stored<kBf16>(d, hn::Mul(activated, load(up))), out);
  });
}

template <bool kBf16>
void sigmoid_product_as(Rows x, ConstRows gate, int rows, int width) {
  const MathTag d;
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
    float* values = x.data + r * x.stride;
    const float* z = gate.data + r * gate.stride;
    for_each_vector(static_cast<std::size_t>(width), [&](auto load, auto store) {
      const MathVec opened = stored<kBf16>(d, sigmoid(d, load(z)));
      store(stored<kBf16>(d, hn::Mul(load(values), opened)), values);
    });
  }
}

template <bool kBf16>
void add_rows_as(float* x, const float* y, std::size_t count) {
  const MathTag d;
  for_each_vector(
      count, [&](auto load, auto store) { store(stored<kBf16>(d, hn::Add(load(x), load(y))), x); });
}

void round_to_bf16_any(float* values, std::size_t count) {
  const MathTag d;
  for_each_vector(count,
                  [&](auto load, auto store) { store(nearest_bf16(d, load(values)), values); });
}

void rms_norm_any(ConstRows x, int rows, int width, const float* scale, double eps, bool bf16,
                  Rows out) {
  bf16 ? rms_norm_as<true>(x, rows, width, scale, eps, out)
       : rms_norm_as<false>(x, rows, width, scale, eps, out);
}
void gated_rms_norm_any(ConstRows x, ConstRows gate, int rows, int width, const float* scale,
                        double eps, bool bf16, Rows out) {
  bf16 ? gated_rms_norm_as<true>(x, gate, rows, width, scale, eps, out)
       : gated_rms_norm_as<false>(x, gate, rows, width, scale, eps, out);
}
void sigmoid_gated_rms_norm_any(ConstRows x, ConstRows gate, int rows, int width,
                                const float* scale, double eps, bool bf16, Rows out) {
  bf16 ? sigmoid_gated_rms_norm_as<true>(x, gate, rows, width, scale, eps, out)
       : sigmoid_gated_rms_norm_as<false>(x, gate, rows, width, scale, eps, out);
}
void silu_product_any(const float* gate, const float* up, std::size_t count, bool bf16,
                      float* out) {
  bf16 ? silu_product_as<true>(gate, up, count, out) : silu_product_as<false>(gate, up, count, out);
}
void sigmoid_product_any(Rows x, ConstRows gate, int rows, int width, bool bf16) {
  bf16 ? sigmoid_product_as<true>(x, gate, rows, width)
       : sigmoid_product_as<false>(x, gate, rows, width);
}
void add_rows_any(float* x, const float* y, std::size_t count, bool bf16) {
  bf16 ? add_rows_as<true>(x, y, count) : add_rows_as<false>(x, y, count);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace replayssm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replayssm {

HWY_EXPORT(rms_norm_any);
HWY_EXPORT(gated_rms_norm_any);
HWY_EXPORT(sigmoid_gated_rms_norm_any);
HWY_EXPORT(silu_product_any);
HWY_EXPORT(sigmoid_product_any);
HWY_EXPORT(add_rows_any);
HWY_EXPORT(round_to_bf16_any);

void rms_norm(ConstRows x, int rows, int width, const float* scale, double eps, DType type,
              Rows out) {
  HWY_DYNAMIC_DISPATCH(rms_norm_any)(x, rows, width, scale, eps, type == DType::bf16, out);
}
void gated_rms_norm(ConstRows x, ConstRows gate, int rows, int width, const float* scale,
                    double eps, DType type, Rows out) {
  HWY_DYNAMIC_DISPATCH(gated_rms_norm_any)
  (x, gate, rows, width, scale, eps, type == DType::bf16, out);
}
void sigmoid_gated_rms_norm(ConstRows x, ConstRows gate, int rows, int width, const float* scale,
                            double eps, DType type, Rows out) {
  HWY_DYNAMIC_DISPATCH(sigmoid_gated_rms_norm_any)
  (x, gate, rows, width, scale, eps, type == DType::bf16, out);
}
void silu_product(const float* gate, const float* up, std::size_t count, DType type, float* out) {
  HWY_DYNAMIC_DISPATCH(silu_product_any)(gate, up, count, type == DType::bf16, out);
}
void sigmoid_product(Rows x, ConstRows gate, int rows, int width, DType type) {
  HWY_DYNAMIC_DISPATCH(sigmoid_product_any)(x, gate, rows, width, type == DType::bf16);
}
void add_rows(float* x, const float* y, std::size_t count, DType type) {
  HWY_DYNAMIC_DISPATCH(add_rows_any)(x, y, count, type == DType::bf16);
}
void round_to_bf16(float* values, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(round_to_bf16_any)(values, count);
}

}  // namespace replayssm
#endif  // HWY_ONCE
