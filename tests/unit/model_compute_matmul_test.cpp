#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "model/matmul.h"
#include "model/onednn_product.h"
#include "model/row_dot.h"
#include "model/widen.h"

namespace replayssm {
namespace {

// A matrix of random stored elements and the floats that they stand for.
struct StoredMatrix {
  std::vector<unsigned char> bytes;
  std::vector<float> values;
  WeightMatrix view;
};

std::uint16_t half_bits(float value) {  // exact for the multiples of 2^-8 below 2 used here
  const auto u = std::bit_cast<std::uint32_t>(value);
  if (value == 0) return static_cast<std::uint16_t>(u >> 16);
  const auto exponent = ((u >> 23) & 0xffu) - 112u;
  return static_cast<std::uint16_t>((u >> 16 & 0x8000u) | (exponent << 10) | (u >> 13 & 0x3ffu));
}

StoredMatrix random_matrix(int rows, int cols, DType type, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> steps(-256, 256);
  StoredMatrix m;
  const auto count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
  m.values.resize(count);
  m.bytes.resize(count * size_of(type) + 1);
  unsigned char* to = m.bytes.data();
  for (std::size_t i = 0; i < count; ++i) {
    float value = static_cast<float>(steps(random)) / 256.0f;
    if (type == DType::f32) {
      value += 1e-4f * static_cast<float>(i % 7);
      std::memcpy(to + 4 * i, &value, 4);
    } else if (type == DType::bf16) {
      const bf16 b = to_bf16(value);
      value = to_float(b);
      std::memcpy(to + 2 * i, &b, 2);
    } else {
      const std::uint16_t h = half_bits(value);
      EXPECT_EQ(half_to_float(h), value);
      std::memcpy(to + 2 * i, &h, 2);
    }
    m.values[i] = value;
  }
  m.view = WeightMatrix{rows, cols, type, m.bytes.data()};
  return m;
}

std::vector<float> random_rows(int rows, int cols, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols));
  for (float& v : x) v = normal(random);
  return x;
}

// The largest |out - exact| over sum |x w|, in units of fp32 rounding times sqrt(K): a sum of K
// products in fp32, in whatever order, stays below a few of them.
double worst_error(const std::vector<float>& x, int rows, const StoredMatrix& w,
                   const std::vector<float>& out, std::size_t out_stride, int columns) {
  const auto k = static_cast<std::size_t>(w.view.cols);
  double worst = 0;
  for (std::size_t m = 0; m < static_cast<std::size_t>(rows); ++m) {
    for (std::size_t n = 0; n < static_cast<std::size_t>(columns); ++n) {
      double sum = 0, magnitude = 0;
      for (std::size_t i = 0; i < k; ++i) {
        const double product = static_cast<double>(x[m * k + i]) * w.values[n * k + i];
        sum += product;
        magnitude += std::abs(product);
      }
      const double unit = 0x1p-24 * std::sqrt(static_cast<double>(k)) * magnitude;
      worst = std::max(worst, std::abs(out[m * out_stride + n] - sum) / (unit + 1e-30));
    }
  }
  return worst;
}

// Runs `body` once for every instruction set that this machine and this build have.
template <class F>
void for_each_instruction_set(F&& body) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

constexpr DType kStored[] = {DType::bf16, DType::f16, DType::f32};

TEST(RowDot, AgreesWithFloat64ForOddShapesAndEveryStoredType) {
  for_each_instruction_set([] {
    for (const DType type : kStored) {
      for (const auto& [n, k] : {std::pair{1, 1}, {7, 5}, {13, 64}, {29, 67}, {8, 255}}) {
        const StoredMatrix w = random_matrix(n, k, type, 1);
        for (int m = 1; m <= 17; ++m) {
          const std::vector<float> x = random_rows(m, k, 2);
          std::vector<float> out(static_cast<std::size_t>(m * n));
          row_dot(x.data(), static_cast<std::size_t>(k), m, w.view, 0, n, out.data(),
                  static_cast<std::size_t>(n));
          EXPECT_LT(worst_error(x, m, w, out, static_cast<std::size_t>(n), n), 4.0)
              << name_of(type) << " m " << m << " n " << n << " k " << k;
        }
      }
    }
  });
}

TEST(RowDot, BitsDoNotDependOnTheOtherRowsOrOnTheRangeOfOutputs) {
  for_each_instruction_set([] {
    for (const DType type : kStored) {
      const int n = 31, k = 131, rows = 17;
      const StoredMatrix w = random_matrix(n, k, type, 3);
      const std::vector<float> x = random_rows(rows, k, 4);
      std::vector<float> all(static_cast<std::size_t>(rows * n));
      row_dot(x.data(), k, rows, w.view, 0, n, all.data(), n);
      for (int m = 0; m < rows; ++m) {
        for (int count = 1; count <= rows - m; ++count) {
          std::vector<float> some(static_cast<std::size_t>(count * n));
          const int split = (m + count) % n;
          const float* first = x.data() + static_cast<std::ptrdiff_t>(m) * k;
          row_dot(first, k, count, w.view, 0, split, some.data(), n);
          row_dot(first, k, count, w.view, split, n, some.data(), n);
          ASSERT_EQ(std::memcmp(some.data(), all.data() + static_cast<std::ptrdiff_t>(m) * n,
                                some.size() * sizeof(float)),
                    0)
              << name_of(type) << " row " << m << " of " << count;
        }
      }
    }
  });
}

TEST(RowDot, StoredElementsNeedOnlyTheirOwnAlignment) {
  const StoredMatrix w = random_matrix(5, 37, DType::bf16, 5);
  std::vector<unsigned char> shifted(w.bytes.size() + 2);
  std::memcpy(shifted.data() + 2, w.bytes.data(), w.bytes.size() - 1);
  const WeightMatrix view{5, 37, DType::bf16, shifted.data() + 2};
  const std::vector<float> x = random_rows(1, 37, 6);
  std::vector<float> a(5), b(5);
  row_dot(x.data(), 37, 1, w.view, 0, 5, a.data(), 5);
  row_dot(x.data(), 37, 1, view, 0, 5, b.data(), 5);
  EXPECT_EQ(a, b);
}

TEST(Widen, IsExactForBlocksOfAnyWidth) {
  for_each_instruction_set([] {
    for (const DType type : kStored) {
      const StoredMatrix w = random_matrix(9, 41, type, 7);
      for (int cols = 1; cols <= 40; ++cols) {
        std::vector<float> out(static_cast<std::size_t>(3 * cols));
        widen_block(w.view, 4, 3, 1, cols, out.data());
        for (int r = 0; r < 3; ++r) {
          for (int c = 0; c < cols; ++c) {
            ASSERT_EQ(out[static_cast<std::size_t>(r * cols + c)],
                      w.values[static_cast<std::size_t>((4 + r) * 41 + 1 + c)]);
          }
        }
      }
    }
  });
}

TEST(OnednnProduct, AgreesWithFloat64AcrossTileBoundaries) {
  std::vector<float> scratch(kWidenedElements);
  for (const DType type : kStored) {
    for (const int n : {kWidenedRows - 1, kWidenedRows, kWidenedRows + 1}) {
      for (const int k : {kWidenedCols - 1, kWidenedCols + 3}) {
        const int m = 5;
        const StoredMatrix w = random_matrix(n, k, type, 8);
        const std::vector<float> x = random_rows(m, k, 9);
        std::vector<float> out(static_cast<std::size_t>(m * n));
        ASSERT_TRUE(onednn_f32_product(x.data(), static_cast<std::size_t>(k), m, w.view, 0, n,
                                       out.data(), static_cast<std::size_t>(n), scratch.data()));
        EXPECT_LT(worst_error(x, m, w, out, static_cast<std::size_t>(n), n), 4.0);
      }
    }
  }
}

TEST(OnednnProduct, MultipliesBf16AsStoredWhereTheMachineCan) {
  const int m = 7, n = 33, k = 65;
  const StoredMatrix w = random_matrix(n, k, DType::bf16, 10);
  std::vector<float> x = random_rows(m, k, 11);
  std::vector<bf16> rounded(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    rounded[i] = to_bf16(x[i]);
    x[i] = to_float(rounded[i]);
  }
  std::vector<float> out(static_cast<std::size_t>(m * n));
  const bool done = onednn_bf16_product(rounded.data(), k, m, w.view, 0, n, out.data(), n);
  if (!done && !onednn_has_bf16_instructions()) GTEST_SKIP() << "no bf16 instructions here";
  ASSERT_TRUE(done);
  EXPECT_LT(worst_error(x, m, w, out, n, n), 4.0);
}

// Several products of one input at once, with any policy, on any number of threads.
std::vector<std::vector<float>> run_products(const MatmulPolicy& policy, int threads,
                                             const std::vector<float>& x, int rows,
                                             const std::vector<const StoredMatrix*>& weights) {
  ThreadPool pool(threads);
  const int cols = weights.front()->view.cols;
  Matmul matmul(pool, policy, rows, cols);
  std::vector<std::vector<float>> outs;
  std::vector<Product> products;
  for (const StoredMatrix* w : weights) {
    outs.emplace_back(static_cast<std::size_t>(rows) * static_cast<std::size_t>(w->view.rows));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    products.push_back({&weights[i]->view, outs[i].data(),
                        static_cast<std::size_t>(weights[i]->view.rows), weights[i]->view.rows});
  }
  matmul.run(x.data(), static_cast<std::size_t>(cols), rows, products);
  return outs;
}

TEST(Matmul, AgreesWithFloat64ForEveryPolicyAndRowCount) {
  const int k = 515;
  const StoredMatrix a = random_matrix(333, k, DType::bf16, 12);
  const StoredMatrix b = random_matrix(3, k, DType::f32, 13);
  const StoredMatrix c = random_matrix(193, k, DType::f16, 14);
  for (const bool deterministic : {false, true}) {
    for (const int rows : {1, 2, 3, 4, 5, 33, 127, 128}) {
      const std::vector<float> x = random_rows(rows, k, 15);
      MatmulPolicy policy;
      policy.deterministic = deterministic;
      const auto outs = run_products(policy, 2, x, rows, {&a, &b, &c});
      EXPECT_LT(worst_error(x, rows, a, outs[0], 333, 333), 4.0);
      EXPECT_LT(worst_error(x, rows, b, outs[1], 3, 3), 4.0);
      EXPECT_LT(worst_error(x, rows, c, outs[2], 193, 193), 4.0);
    }
  }
}

TEST(Matmul, BitsDoNotDependOnTheThreadCount) {
  const int k = 600;
  const StoredMatrix a = random_matrix(1000, k, DType::bf16, 16);
  const StoredMatrix b = random_matrix(70, k, DType::f32, 17);
  for (const bool deterministic : {false, true}) {
    for (const int rows : {1, 3, 33, 140}) {
      const std::vector<float> x = random_rows(rows, k, 18);
      MatmulPolicy policy;
      policy.deterministic = deterministic;
      const auto one = run_products(policy, 1, x, rows, {&a, &b});
      for (const int threads : {2, 3, 5}) {
        EXPECT_EQ(run_products(policy, threads, x, rows, {&a, &b}), one) << threads;
      }
    }
  }
}

TEST(Matmul, DeterministicBitsOfARowDoNotDependOnItsBatch) {
  const int k = 321, n = 100, rows = 40;
  const StoredMatrix w = random_matrix(n, k, DType::bf16, 19);
  const std::vector<float> x = random_rows(rows, k, 20);
  MatmulPolicy policy;
  policy.deterministic = true;
  const std::vector<float> all = run_products(policy, 2, x, rows, {&w})[0];
  for (const int first : {0, 1, 5, 39}) {
    for (const int count : {1, 2, 3, 4, 17}) {
      if (first + count > rows) continue;
      const std::vector<float> some(x.begin() + first * k, x.begin() + (first + count) * k);
      const std::vector<float> out = run_products(policy, 2, some, count, {&w})[0];
      EXPECT_EQ(std::memcmp(out.data(), all.data() + first * n, out.size() * sizeof(float)), 0);
    }
  }
}

TEST(Matmul, RoundsOutputsToBf16WhereActivationsAreBf16) {
  const int k = 100, n = 50;
  const StoredMatrix w = random_matrix(n, k, DType::bf16, 21);
  for (const int rows : {2, 140}) {
    const std::vector<float> x = random_rows(rows, k, 22);
    MatmulPolicy policy;
    const std::vector<float> exact = run_products(policy, 1, x, rows, {&w})[0];
    policy.activations = DType::bf16;
    const std::vector<float> rounded = run_products(policy, 1, x, rows, {&w})[0];
    for (std::size_t i = 0; i < exact.size(); ++i) EXPECT_EQ(rounded[i], round_to_bf16(exact[i]));
  }
}

TEST(Matmul, WritesNoColumnPastTheOnesAskedFor) {
  ThreadPool pool(2);
  MatmulPolicy policy;
  const int k = 64, stride = 300, columns = 250, rows = 140;
  const StoredMatrix w = random_matrix(stride, k, DType::bf16, 23);
  const std::vector<float> x = random_rows(rows, k, 24);
  std::vector<float> out(rows * stride, 7.0f);
  Matmul matmul(pool, policy, rows, k);
  const Product product{&w.view, out.data(), stride, columns};
  matmul.run(x.data(), k, rows, {&product, 1});
  for (int r = 0; r < rows; ++r) {
    for (int c = columns; c < stride; ++c)
      EXPECT_EQ(out[static_cast<std::size_t>(r * stride + c)], 7.0f);
  }
  EXPECT_LT(worst_error(x, rows, w, out, stride, columns), 4.0);
}

TEST(Matmul, KernelIsAFunctionOfPolicyTypeAndRows) {
  MatmulPolicy policy;
  EXPECT_EQ(choose_kernel(policy, DType::bf16, 1), MatmulKernel::row_dot);
  EXPECT_EQ(choose_kernel(policy, DType::bf16, 127), MatmulKernel::row_dot);
  EXPECT_EQ(choose_kernel(policy, DType::bf16, 512), MatmulKernel::onednn_f32);
  policy.bf16_instructions = true;  // of no use to fp32 activations: rounding them would show
  EXPECT_EQ(choose_kernel(policy, DType::bf16, 512), MatmulKernel::onednn_f32);
  policy.activations = DType::bf16;
  EXPECT_EQ(choose_kernel(policy, DType::bf16, 512), MatmulKernel::onednn_bf16);
  EXPECT_EQ(choose_kernel(policy, DType::f16, 512), MatmulKernel::onednn_f32);
  EXPECT_EQ(choose_kernel(policy, DType::bf16, 1), MatmulKernel::row_dot);
  policy.deterministic = true;
  for (const int rows : {1, 512}) {
    EXPECT_EQ(choose_kernel(policy, DType::bf16, rows), MatmulKernel::row_dot);
  }
}

}  // namespace
}  // namespace replayssm
