// Weights in 8 bits with one multiplier for each square block, as Qwen's FP8 checkpoints store
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/bfloat16.h"
#include "core/result.h"

namespace replayssm {

// Rows and columns of a block. Blocks at the right and lower edges are cut off.
inline constexpr std::int64_t kFloat8Block = 128;

constexpr std::int64_t float8_blocks(std::int64_t size) {
  return (size + kFloat8Block - 1) / kFloat8Block;
}

// The value of an e4m3 code: sign, 4 bits of exponent with bias 7, 3 of fraction; subnormals down
// to 2^-9, no infinities, the two codes with all other bits set are NaN, the largest value is 448.
// Source: Micikevicius et al., FP8 Formats for Deep Learning (arXiv 2209.05433).
float e4m3_to_float(std::uint8_t code);

// out[r][c] = e4m3(codes[r][c]) * scales[r / 128][c / 128]: the product in fp32, rounded to the
// nearest bf16.
//   codes [rows, cols], scales [float8_blocks(rows), float8_blocks(cols)], out [rows, cols]
// Errors name the first block whose scale is negative or not finite, and the first element that is
// NaN or whose product bf16 cannot hold; `out` is then of no use.
Status dequantise_float8(std::span<const std::byte> codes, std::int64_t rows, std::int64_t cols,
                         std::span<const float> scales, bf16* out);

// The same errors, without a result.
Status check_float8(std::span<const std::byte> codes, std::int64_t rows, std::int64_t cols,
                    std::span<const float> scales);

}  // namespace replayssm
