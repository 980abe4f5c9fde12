// What float64 says that an operation does to an Image, from the definition: rebuild the state
// record by record, then one step of the recurrence.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include <string>
#include <vector>

#include "cuda_step_image.h"

namespace replayssm::cuda::test {

using HeadState = std::vector<double>;  // [V][K]

struct Worst {
  double output = 0;      // relative L2 error of one head's output
  double correction = 0;  // of d, before it is rounded to bf16
  double state = 0;       // of a folded or written state
  std::string fault;      // the first thing that is wrong, empty if none

  void fail(std::string what) {
    if (fault.empty()) fault = std::move(what);
  }
};

struct Tolerance {
  double output, correction, state;
};
// fp32: the criterion of the operations. bf16: outputs are fp32 sums over exact bf16 products, with
// weights kept to 2^-17 (KDA's decayed inputs, folds); d and states are rounded to 8 bits.
inline Tolerance tolerance(DType state) {
  if (state == DType::f32) return {1e-6, 1e-6, 1e-6};
  return {3e-5, 3e-3, 3e-3};
}

class Difference {
 public:
  void add(double got, double want) {
    error_ += (got - want) * (got - want);
    size_ += want * want;
    bad_ = bad_ || !std::isfinite(got);
  }
  // The error relative to at least `scale`.
  void at_least(double scale) { size_ = std::max(size_, scale * scale); }
  double relative() const {
    if (bad_) return 1e30;
    return size_ > 0 ? std::sqrt(error_ / size_) : (error_ > 0 ? 1e30 : 0.0);
  }

 private:
  double error_ = 0, size_ = 0;
  bool bad_ = false;
};

inline HeadState load_state(const Image& m, int slot, int head) {
  HeadState s(kValueDim * kKeyDim);
  for (std::size_t i = 0; i < s.size(); ++i)
    s[i] = m.load(m.states, m.state_at(slot, head, 0, 0) + i);
  return s;
}

inline std::vector<double> normalised(const bf16* x) {
  double sum = 1e-6;
  std::vector<double> n(kKeyDim);
  for (std::size_t i = 0; i < kKeyDim; ++i) {
    n[i] = to_float(x[i]);
    sum += n[i] * n[i];
  }
  for (double& v : n) v /= std::sqrt(sum);
  return n;
}

// S = S diag(a) + d k^T with the record of `position`.
inline void apply_record(const Image& m, int row, int head, int position, HeadState& s) {
  const std::size_t record = m.value_record(row, head, position);
  const std::vector<double> k =
      normalised(m.keys.data() + m.key_record(row, head / m.o.heads.group(), position) * kKeyDim);
  const auto width = static_cast<std::size_t>(m.width());
  std::vector<double> a(kKeyDim);
  for (std::size_t c = 0; c < kKeyDim; ++c) {
    a[c] = m.gates[record * width + (width > 1 ? c : 0)];
  }
  for (std::size_t v = 0; v < kValueDim; ++v) {
    const double d = m.load(m.corrections, record * kValueDim + v);
    double* const of_row = s.data() + v * kKeyDim;
    for (std::size_t c = 0; c < kKeyDim; ++c) of_row[c] = of_row[c] * a[c] + d * k[c];
  }
}

inline double gate_of(const Image& m, int token, int head, int channel) {
  const auto at = (static_cast<std::size_t>(token) * static_cast<std::size_t>(m.hv()) +
                   static_cast<std::size_t>(head)) *
                      static_cast<std::size_t>(m.width()) +
                  static_cast<std::size_t>(channel);
  const double given = m.gate[at];
  if (!m.o.projected_gates) return given;
  const double x = given + m.dt_bias[static_cast<std::size_t>(head * m.width() + channel)];
  const double rate = std::exp(static_cast<double>(m.a_log[static_cast<std::size_t>(head)]));
  if (m.o.lower_bound < 0) return m.o.lower_bound / (1 + std::exp(-rate * x));
  return -rate * std::log1p(std::exp(x));
}
inline double beta_of(const Image& m, int token, int head) {
  const double b = m.beta[static_cast<std::size_t>(token * m.hv() + head)];
  return m.o.projected_gates ? 1 / (1 + std::exp(-b)) : b;
}

// One step from `s`: fills d and o, and moves s on.
inline void step(const Image& m, int token, int head, HeadState& s, std::vector<double>& d,
                 std::vector<double>& o) {
  const int key_head = head / m.o.heads.group();
  const std::vector<double> k = normalised(m.qkv.data() + m.k_at(token, key_head));
  const std::vector<double> q = normalised(m.qkv.data() + m.q_at(token, key_head));
  const double beta = beta_of(m, token, head);
  d.resize(kValueDim);
  o.resize(kValueDim);
  std::vector<double> a(kKeyDim);
  for (int c = 0; c < kKeyDim; ++c) {
    a[static_cast<std::size_t>(c)] = std::exp(gate_of(m, token, head, m.width() > 1 ? c : 0));
  }
  for (std::size_t v = 0; v < kValueDim; ++v) {
    double* const row = s.data() + v * kKeyDim;
    double y = 0, x = 0;
    for (std::size_t c = 0; c < kKeyDim; ++c) row[c] *= a[c];
    for (std::size_t c = 0; c < kKeyDim; ++c) y += row[c] * k[c];
    d[v] = beta * (to_float(m.qkv[m.v_at(token, head) + v]) - y);
    for (std::size_t c = 0; c < kKeyDim; ++c) row[c] += d[v] * k[c];
    for (std::size_t c = 0; c < kKeyDim; ++c) x += row[c] * q[c];
    o[v] = x / std::sqrt(128.0);
  }
}

inline void compare_state(const Image& after, int slot, int head, const HeadState& want,
                          Worst& worst) {
  Difference diff;
  const HeadState got = load_state(after, slot, head);
  for (std::size_t i = 0; i < want.size(); ++i) diff.add(got[i], want[i]);
  worst.state = std::max(worst.state, diff.relative());
}

// Copies what the operation was allowed to write from `after` into `before`; whatever else differs
// then was not its business.
template <class T>
void allow(std::vector<T>& before, const std::vector<T>& after, std::size_t first, std::size_t n) {
  std::copy_n(after.begin() + static_cast<std::ptrdiff_t>(first), n,
              before.begin() + static_cast<std::ptrdiff_t>(first));
}

inline void compare_untouched(const Image& before, const Image& after, Worst& worst) {
  auto same = [&](const auto& a, const auto& b, const char* what) {
    if (std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) != 0) {
      worst.fail(fmt::format("wrote outside its {}", what));
    }
  };
  same(before.states, after.states, "states");
  same(before.corrections, after.corrections, "corrections");
  same(before.keys, after.keys, "keys");
  same(before.key_scales, after.key_scales, "key scales");
  same(before.gates, after.gates, "gates");
  same(before.out, after.out, "outputs");
}

inline void judge(Worst& worst, const Image& m) {
  const Tolerance limit = tolerance(m.o.state);
  if (worst.output > limit.output) worst.fail(fmt::format("output error {:.3g}", worst.output));
  if (worst.correction > limit.correction) {
    worst.fail(fmt::format("correction error {:.3g}", worst.correction));
  }
  if (worst.state > limit.state) worst.fail(fmt::format("state error {:.3g}", worst.state));
}

// Compares a window_step (or packed_step) that turned `before` into `after`, fp32 outputs.
inline Worst compare_step(Image before, const Image& after, bool packed) {
  Worst worst;
  const int group = before.o.heads.group();
  const std::size_t width = static_cast<std::size_t>(before.width());
  std::vector<double> d, o;
  for (int e = 0; e < before.o.entries; ++e) {
    const int row = before.row[static_cast<std::size_t>(e)];
    const auto at = static_cast<std::size_t>(row);
    const int t = before.committed[at], c = packed ? t : before.checkpoint[at];
    const int base = before.base[at], home = before.home[at];
    const bool fold = !packed && t - c >= before.o.fold_block;
    for (int head = 0; head < before.hv(); ++head) {
      const std::size_t out_at =
          (static_cast<std::size_t>(e) * static_cast<std::size_t>(before.hv()) +
           static_cast<std::size_t>(head)) *
          kValueDim;
      allow(before.out, after.out, 4 * out_at, 4 * kValueDim);
      if (base < 0) {
        for (int v = 0; v < kValueDim; ++v) {
          if (after.out_value(e, head, v) != 0.0f) worst.fail("a null row's output is not zero");
        }
        continue;
      }
      HeadState s = c > 0 ? load_state(before, base, head) : HeadState(kValueDim * kKeyDim);
      for (int p = c; p < t; ++p) apply_record(before, row, head, p, s);
      const std::size_t state_bytes = kValueDim * kKeyDim * before.element();
      if (fold) {
        compare_state(after, home, head, s, worst);
        s = load_state(after, home, head);
      }
      if (fold || packed) {
        allow(before.states, after.states, before.state_at(home, head, 0, 0) * before.element(),
              packed ? 0 : state_bytes);
      }
      step(before, e, head, s, d, o);
      if (packed) {
        compare_state(after, home, head, s, worst);
        allow(before.states, after.states, before.state_at(home, head, 0, 0) * before.element(),
              state_bytes);
      }
      Difference out, correction;
      double d_size = 0;
      const std::size_t record = before.value_record(row, head, t);
      for (std::size_t v = 0; v < kValueDim; ++v) {
        out.add(after.out_value(e, head, static_cast<int>(v)), o[v]);
        d_size += d[v] * d[v];
        if (!packed) correction.add(after.load(after.corrections, record * kValueDim + v), d[v]);
      }
      // The error is relative to |o|, but to no less than |d| / 128. Where state and records add
      // little, o is (k.q) d. In k.q, with |k| = 1 and |q| = 128^-1/2, the 128 products have random
      // signs, and the sums on the way to it are of the size of a k.q that is nothing special:
      // 128^-1/2 128^-1/2 = 1 / 128. Each addition in fp32 errs by up to 2^-24 of such a sum. That
      // error does not shrink when the sum happens to end near zero, so an error relative to a
      // small k.q says nothing about the arithmetic; one relative to 1 / 128 is a few 2^-24 for
      // every k and q. (A bound that always holds has the sum of |k_i q_i| in place of 1 / 128: up
      // to 11 times as much, and so would find less.)
      out.at_least(std::sqrt(d_size) / 128);
      worst.output = std::max(worst.output, out.relative());
      if (packed) continue;
      worst.correction = std::max(worst.correction, correction.relative());
      allow(before.corrections, after.corrections, record * kValueDim * before.element(),
            kValueDim * before.element());
      for (std::size_t i = 0; i < width; ++i) {
        // expf is right to 2 ulp, 2.4e-7. A gate from its projection is right to a few roundings
        // relative to itself, and so is the exponent.
        const double gate = gate_of(before, e, head, static_cast<int>(i));
        const double want = std::exp(gate);
        const double allowed = (2.4e-7 + (before.o.projected_gates ? 1e-6 * -gate : 0.0)) * want;
        if (!(std::fabs(after.gates[record * width + i] - want) <= allowed + 1e-37)) {
          worst.fail("appended decay");
        }
      }
      allow(before.gates, after.gates, record * width, width);
      if (head % group != 0) continue;
      const std::size_t key = before.key_record(row, head / group, t);
      const bf16* const k = before.qkv.data() + before.k_at(e, head / group);
      if (std::memcmp(after.keys.data() + key * kKeyDim, k, 2 * kKeyDim) != 0) {
        worst.fail("appended key");
      }
      const double scale = normalised_scale(k);
      if (!(std::fabs(after.key_scales[key] - scale) <= 1e-6 * scale)) {
        worst.fail("appended key scale");
      }
      allow(before.keys, after.keys, key * kKeyDim, kKeyDim);
      allow(before.key_scales, after.key_scales, key, 1);
    }
  }
  compare_untouched(before, after, worst);
  judge(worst, before);
  return worst;
}

}  // namespace replayssm::cuda::test
