// Products with float8 rows on a GPU against float64. Skipped with the reason where there is none.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include "core/random_stream.h"
#include "model/cuda/decoder_buffers.h"
#include "model/cuda/float8_kernels.h"
#include "model/cuda/gemm.h"
#include "model/cuda/matvec.h"
#include "model/float8.h"
#include "ops/cuda/cuda_check.h"
#include "ops/cuda/launch.h"

namespace replayssm::cuda {
namespace {

// Uniform numbers, one after the other.
class RandomNumbers {
 public:
  float uniform() { return static_cast<float>(uniform_at(7, index_++)); }

 private:
  std::uint64_t index_ = 0;
};

constexpr int kBlock = static_cast<int>(kFloat8Block);
constexpr float kLargest = 448;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// A weight of float8 rows above bf16 rows, on the host; values as the device multiplies them.
struct Weight {
  int float8_rows = 0;
  int bf16_rows = 0;
  int cols = 0;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;  // [float8_rows / 128, float8_scale_pitch(cols)]
  std::vector<bf16> rest;
  std::vector<double> values;  // [rows, cols]

  int rows() const { return float8_rows + bf16_rows; }
};

Weight random_weight(int float8_rows, int bf16_rows, int cols, RandomNumbers& random) {
  Weight w;
  w.float8_rows = float8_rows;
  w.bf16_rows = bf16_rows;
  w.cols = cols;
  const int pitch = float8_scale_pitch(cols);
  for (int i = 0; i < float8_rows / kBlock * pitch; ++i) {
    // What lies behind a row of blocks is not read.
    const bool exists = i % pitch < cols / kBlock;
    w.scales.push_back(exists ? std::ldexp(0.5f + random.uniform(), -6)
                              : std::numeric_limits<float>::quiet_NaN());
  }
  for (int r = 0; r < float8_rows; ++r) {
    for (int c = 0; c < cols; ++c) {
      std::uint8_t code = 0x7f;
      while ((code & 0x7f) == 0x7f) code = static_cast<std::uint8_t>(random.uniform() * 256);
      w.codes.push_back(code);
      w.values.push_back(double{e4m3_to_float(code)} *
                         w.scales[at(r / kBlock * pitch + c / kBlock)]);
    }
  }
  for (int i = 0; i < bf16_rows * cols; ++i) {
    w.rest.push_back(to_bf16(random.uniform() - 0.5f));
    w.values.push_back(to_float(w.rest.back()));
  }
  return w;
}

// The nearest e4m3 number, the even one of two as near.
float nearest_e4m3(float x) {
  const float magnitude = std::min(std::abs(x), kLargest);
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const float unit = std::ldexp(1.0f, std::max(exponent - 1, -6) - 3);
  return std::copysign(std::nearbyint(magnitude / unit) * unit, x);
}

// Inputs as a product with float8 rows sees them.
std::vector<double> quantised(const std::vector<bf16>& x) {
  std::vector<double> out(x.size());
  for (std::size_t first = 0; first < x.size(); first += at(kBlock)) {
    float largest = 0;
    for (std::size_t i = first; i < first + at(kBlock); ++i) {
      largest = std::max(largest, std::abs(to_float(x[i])));
    }
    const float scale = largest == 0 ? 1.0f : largest / kLargest;
    for (std::size_t i = first; i < first + at(kBlock); ++i) {
      out[i] = double{nearest_e4m3(to_float(x[i]) / scale)} * scale;
    }
  }
  return out;
}

template <class T>
DeviceBuffer on_device(const std::vector<T>& from) {
  if (from.empty()) return {};
  return DeviceBuffer::copy_of(from.data(), from.size() * sizeof(T)).value();
}
template <class T>
std::vector<T> from_device(const DeviceBuffer& from, std::size_t count) {
  std::vector<T> to(count);
  EXPECT_EQ(cudaMemcpy(to.data(), from.as<void>(), count * sizeof(T), cudaMemcpyDeviceToHost),
            cudaSuccess);
  return to;
}

class CudaFloat8 : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no GPU: products with float8 rows run on one";
    }
    stream_ = Stream::make().value();
  }

  struct Placed {
    DeviceBuffer codes, scales, rest;
    DeviceMatrix matrix;
  };
  static Placed place(const Weight& w) {
    Placed placed{on_device(w.codes), on_device(w.scales), on_device(w.rest), {}};
    placed.matrix.rows = w.rows();
    placed.matrix.cols = w.cols;
    placed.matrix.data = placed.rest.as<bf16>();
    placed.matrix.float8 = {placed.codes.as<std::uint8_t>(), placed.scales.as<float>(),
                            w.float8_rows};
    return placed;
  }

  std::vector<bf16> random_numbers(std::int64_t count) {
    std::vector<bf16> x(at(count));
    for (bf16& value : x) {
      value = to_bf16((random_.uniform() - 0.5f) *
                      std::ldexp(1.0f, static_cast<int>(8 * random_.uniform())));
    }
    return x;
  }
  // The last block of a row of zeros: it has a multiplier all the same.
  std::vector<bf16> random_inputs(int tokens, int cols) {
    std::vector<bf16> x = random_numbers(std::int64_t{tokens} * cols);
    std::fill_n(x.end() - kBlock, kBlock, to_bf16(0));
    return x;
  }

  // The most that a sum over one row may be off: fp32 sums of `cols` products, in whatever order,
  // stay within cols 2^-24 of the sum of magnitudes. Hopper's matrix units move the products of a
  // step in float8, and what was summed before, to the place of the largest and keep some 14 bits
  // (DeepSeek-V3, arXiv 2412.19437, section 3.3.2): 2^-13 of it for each product, and 128 products
  // are summed before they are multiplied with their scales. The result is rounded to bf16.
  enum class Sums { fp32, matrix_units };

  // `x8`: what float8 rows are multiplied with.
  static void expect_products(const Weight& w, const std::vector<bf16>& x,
                              const std::vector<double>& x8, Sums sums, int tokens,
                              const std::vector<bf16>& added, const std::vector<bf16>& got) {
    double squares = 0, squared_errors = 0;
    for (int t = 0; t < tokens; ++t) {
      for (int r = 0; r < w.rows(); ++r) {
        const bool cut = sums == Sums::matrix_units && r < w.float8_rows;
        double sum = 0, magnitude = 0, lost = 0;
        for (int first = 0; first < w.cols; first += kBlock) {
          double largest = 0, block = 0;
          for (int c = first; c < first + kBlock; ++c) {
            const auto input = at(std::int64_t{t} * w.cols + c);
            const double product = w.values[at(std::int64_t{r} * w.cols + c)] *
                                   (r < w.float8_rows ? x8[input] : double{to_float(x[input])});
            sum += product;
            magnitude += std::abs(product);
            block += product;
            largest = std::max({largest, std::abs(product), std::abs(block)});
          }
          lost += largest * kBlock * 0x1p-13;
        }
        const auto out = at(std::int64_t{t} * w.rows() + r);
        const double product = sum;
        if (!added.empty()) sum += to_float(added[out]);
        const double error = std::abs(to_float(got[out]) - sum);
        // cuBLAS rounds a product before it adds it.
        const double rounded = std::abs(sum) + (added.empty() ? 0 : std::abs(product));
        const double limit = rounded * 0x1p-8 + magnitude * w.cols * 0x1p-24 + (cut ? lost : 0);
        ASSERT_LE(error, limit) << "token " << t << ", row " << r << ": " << to_float(got[out])
                                << " instead of " << sum;
        squares += sum * sum;
        squared_errors += error * error;
      }
    }
    // In the mean cut bits and rounding hurt far less.
    EXPECT_LE(std::sqrt(squared_errors), std::sqrt(squares) * 0x1p-7);
  }

  Stream stream_;
  RandomNumbers random_;
};

TEST_F(CudaFloat8, InputsAreRoundedToTheNearestCodes) {
  constexpr int kTokens = 5, kPadded = 8, kCols = 384;
  std::vector<bf16> x = random_inputs(kTokens, kCols);
  x[at(kCols + 3)] = to_bf16(std::numeric_limits<float>::infinity());
  const DeviceBuffer from = on_device(x);
  auto codes = DeviceBuffer::make(kPadded * kCols).value();
  auto scales = DeviceBuffer::make(kPadded * kCols / kBlock * sizeof(float)).value();
  ASSERT_TRUE(launch_quantise({from.as<bf16>(), kTokens, kPadded, kCols, codes.as<std::uint8_t>(),
                               scales.as<float>()},
                              stream_)
                  .ok());
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  const auto got = from_device<std::uint8_t>(codes, kPadded * kCols);
  const auto multipliers = from_device<float>(scales, kPadded * kCols / kBlock);
  const std::vector<double> want = quantised(x);
  for (int t = 0; t < kPadded; ++t) {
    for (int c = 0; c < kCols; ++c) {
      const auto i = at(t * kCols + c);
      const double value =
          double{e4m3_to_float(got[i])} * multipliers[at(c / kBlock * kPadded + t)];
      if (t == 1 && c < kBlock) {
        EXPECT_TRUE(std::isnan(value)) << "not finite, column " << c;
      } else {
        EXPECT_EQ(value, t < kTokens ? want[i] : 0.0) << "token " << t << ", column " << c;
      }
    }
  }
}

TEST_F(CudaFloat8, ProductsOfSeveralTokensAreThoseOfTheRoundedInputs) {
  for (const auto& [float8_rows, bf16_rows, cols] :
       {std::tuple{256, 0, 128}, {128, 96, 384}, {640, 16, 2560}, {512, 0, 640}}) {
    const Weight w = random_weight(float8_rows, bf16_rows, cols, random_);
    const Placed placed = place(w);
    for (const bool fixed : {false, true}) {
      std::optional<FixedAlgorithms> algorithms;
      if (fixed) algorithms.emplace().most_tokens = 40;
      auto gemm = Gemm::make(algorithms, {40, cols});
      ASSERT_TRUE(gemm.ok()) << gemm.error().message;
      for (const int tokens : {1, 3, 8, 33}) {
        for (const bool add : {false, true}) {
          SCOPED_TRACE(fmt::format("{}+{} x {}, {} tokens{}{}", float8_rows, bf16_rows, cols,
                                   tokens, add ? ", added" : "", fixed ? ", fixed" : ""));
          const std::vector<bf16> x = random_inputs(padded_tokens(tokens), cols);
          const std::vector<bf16> before =
              random_numbers(std::int64_t{padded_tokens(tokens)} * w.rows());
          const DeviceBuffer from = on_device(x), to = on_device(before);
          const Status run = gemm->run(placed.matrix, from.as<bf16>(), tokens,
                                       {to.as<void>(), DType::bf16, add}, stream_);
          ASSERT_TRUE(run.ok()) << run.error().message;
          ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
          expect_products(w, x, quantised(x), Sums::matrix_units, tokens,
                          add ? before : std::vector<bf16>{},
                          from_device<bf16>(to, at(std::int64_t{tokens} * w.rows())));
        }
      }
    }
  }
}

TEST_F(CudaFloat8, ProductsOfOneTokenTakeTheInputAsItIs) {
  const std::size_t shared = device_limits().value().shared_bytes_per_block;
  for (const auto& [float8_rows, bf16_rows, cols] : {std::tuple{256, 0, 128},
                                                     {128, 96, 384},
                                                     {640, 16, 2560},
                                                     {256, 48, 17408},
                                                     {128, 0, 5120}}) {
    const Weight w = random_weight(float8_rows, bf16_rows, cols, random_);
    const Placed placed = place(w);
    ASSERT_TRUE(matvec_fits(placed.matrix, 1, shared));
    for (const bool add : {false, true}) {
      SCOPED_TRACE(fmt::format("{}+{} x {}", float8_rows, bf16_rows, cols));
      const std::vector<bf16> x = random_inputs(1, cols);
      const std::vector<bf16> before = random_numbers(w.rows());
      const DeviceBuffer from = on_device(x), to = on_device(before);
      MatvecArgs args;
      args.input = MatvecInput::plain;
      args.from = from.as<bf16>();
      args.weight = placed.matrix;
      args.out = to.as<void>();
      args.add = add;
      ASSERT_TRUE(launch_matvec(args, stream_).ok());
      ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
      std::vector<double> values(x.size());
      std::transform(x.begin(), x.end(), values.begin(), [](bf16 v) { return to_float(v); });
      expect_products(w, x, values, Sums::fp32, 1, add ? before : std::vector<bf16>{},
                      from_device<bf16>(to, at(w.rows())));
    }
  }
}

TEST_F(CudaFloat8, AnInputThatThereIsNoRoomForIsRefused) {
  const Weight w = random_weight(128, 0, 256, random_);
  const Placed placed = place(w);
  auto gemm = Gemm::make({}, {8, 128}).value();
  const DeviceBuffer x = on_device(random_numbers(8 * 256)),
                     to = on_device(random_numbers(8 * 128));
  const Status run =
      gemm.run(placed.matrix, x.as<bf16>(), 8, {to.as<void>(), DType::bf16, false}, stream_);
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().message,
            "float8 product: input: [8, 256] is not accepted; expected at most [8, 128]");
}

}  // namespace
}  // namespace replayssm::cuda
