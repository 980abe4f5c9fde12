// Random weights in place of a checkpoint's: for measuring a model's speed from its config.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/bfloat16.h"

namespace replayssm {

// Whatever the tensor is called, the same name and shape always give the same values. A matrix
// keeps the size of what it is multiplied with: uniform, with variance 1 / cols.
AlignedBuffer<std::byte> dummy_matrix(std::string_view name, std::int64_t rows, std::int64_t cols);

// A vector of `elements`, as TensorReader::vector gives it, with `added` put on top of what would
// be stored. By the end of the name: norms scale by 1; A_log and dt_bias make states that forget
// half of themselves in some tokens to some hundreds; convolution taps are within 1/2.
std::vector<float> dummy_vector(std::string_view name, std::int64_t elements, float added);

}  // namespace replayssm
