// Element types of stored tensors.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace replayssm {

enum class DType { f64, f32, bf16, f16 };

constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::f64:
      return 8;
    case DType::f32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
  }
  return 0;
}

// "float32" and so on, as flags and config files spell it.
constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::f64:
      return "float64";
    case DType::f32:
      return "float32";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
  }
  return "unknown";
}

// The inverse of name_of; nothing for any other text.
constexpr std::optional<DType> dtype_named(std::string_view name) {
  for (DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    if (name == name_of(type)) return type;
  }
  return std::nullopt;
}

}  // namespace replayssm
