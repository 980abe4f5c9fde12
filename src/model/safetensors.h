// The safetensors format: an 8-byte little-endian header length, a JSON header
//   {"name": {"dtype": "BF16", "shape": [rows, cols], "data_offsets": [begin, end]}, ...}
// with an optional "__metadata__" object of strings, then the data. Offsets count from the end of
// the header; tensors fill the data without overlap or gap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "model/mapped_file.h"

namespace replayssm {

// A header longer than this is refused before it is read.
inline constexpr std::uint64_t kLargestSafetensorsHeader = 100'000'000;

// Element types that a file may hold.
enum class StoredType { f64, f32, f16, bf16, f8_e4m3, f8_e5m2, i64, i32, i16, i8, u8, boolean };

std::string_view name_of(StoredType type);  // as the format spells it: "BF16"
std::size_t size_of(StoredType type);       // bytes
// The type that the engine computes with, where there is one.
std::optional<DType> dtype_of(StoredType type);

// One tensor, row-major. `data` points into the file's bytes and holds exactly the product of
// `shape` (1 for a scalar) times size_of(type) bytes, at any alignment.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::bf16;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};

// "[64, 128]".
std::string shape_text(std::span<const std::int64_t> shape);

// The tensors of a file whose whole content is `file`, ascending by name. `label` names it in
// errors; where one tensor is at fault, the error names that too. Reads nothing outside `file`, and
// of it only the header.
Result<std::vector<StoredTensor>> parse_safetensors(std::span<const std::byte> file,
                                                    std::string_view label);

// Owns a mapped file. Move-only; tensors stay valid when it is moved.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  const std::string& label() const { return label_; }  // the file's name
  std::span<const StoredTensor> tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;  // null where there is none

 private:
  SafetensorsFile(MappedFile file, std::string label, std::vector<StoredTensor> tensors)
      : file_(std::move(file)), label_(std::move(label)), tensors_(std::move(tensors)) {}

  MappedFile file_;
  std::string label_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace replayssm
