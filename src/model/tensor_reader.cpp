#include "model/tensor_reader.h"

#include <cstring>
#include <utility>

#include "core/bfloat16.h"

namespace replayssm {
namespace {

// Tensors that other parts of a checkpoint own.
bool belongs_elsewhere(std::string_view name) {
  return name.starts_with("model.visual.") || name.starts_with("mtp.");
}

// The format allows any address; vector loads want whole elements.
const void* aligned(std::span<const std::byte> data, std::size_t alignment,
                    std::vector<AlignedBuffer<std::byte>>& copies) {
  if (reinterpret_cast<std::uintptr_t>(data.data()) % alignment == 0) return data.data();
  AlignedBuffer<std::byte>& copy = copies.emplace_back(data.size());
  std::memcpy(copy.data(), data.data(), data.size());
  return copy.data();
}

float element(const std::byte* at, StoredType type) {
  if (type == StoredType::f32) {
    float value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return type == StoredType::bf16 ? to_float(bf16{bits}) : half_to_float(bits);
}

}  // namespace

Result<const StoredTensor*> TensorReader::find(const std::string& name,
                                               const std::vector<std::int64_t>& shape) {
  const CheckpointFiles::Entry* entry = files_.find(name);
  if (entry == nullptr) {
    return Error{fmt::format("tensor {}: missing; expected {}", name, shape_text(shape))};
  }
  const StoredTensor& tensor = *entry->tensor;
  if (tensor.shape != shape) {
    return Error{fmt::format("{}: tensor {}: shape {}; expected {}", entry->file->label(), name,
                             shape_text(tensor.shape), shape_text(shape))};
  }
  switch (tensor.type) {
    case StoredType::bf16:
    case StoredType::f16:
    case StoredType::f32:
      break;
    default:
      return Error{fmt::format("{}: tensor {}: dtype {}; expected BF16, F16 or F32",
                               entry->file->label(), name, name_of(tensor.type))};
  }
  used_.insert(name);
  bytes_ += static_cast<std::int64_t>(tensor.data.size());
  return &tensor;
}

Status TensorReader::read_matrix(const std::string& name, std::int64_t rows, std::int64_t cols,
                                 Copies& copies, WeightMatrix& out) {
  const auto tensor = find(name, {rows, cols});
  if (!tensor) return tensor.error();
  out.rows = static_cast<int>(rows);
  out.cols = static_cast<int>(cols);
  out.type = *dtype_of((*tensor)->type);
  out.data = aligned((*tensor)->data, size_of(out.type), copies);
  return {};
}

Status TensorReader::matrix(const std::string& name, std::int64_t rows, std::int64_t cols,
                            WeightMatrix& out) {
  return read_matrix(name, rows, cols, copies_, out);
}

Status TensorReader::parts(const std::string& name, std::int64_t rows, std::int64_t cols,
                           std::span<const MatrixPart> parts) {
  Copies temporary;
  WeightMatrix whole;
  REPLAYSSM_TRY(read_matrix(name, rows, cols, temporary, whole));
  const std::size_t row_bytes = static_cast<std::size_t>(cols) * size_of(whole.type);
  const auto* from = static_cast<const std::byte*>(whole.data);
  for (const MatrixPart& part : parts) {
    std::int64_t count = 0;
    for (const RowRange& range : part.rows) count += range.count;
    AlignedBuffer<std::byte>& copy =
        copies_.emplace_back(static_cast<std::size_t>(count) * row_bytes);
    std::byte* to = copy.data();
    for (const RowRange& range : part.rows) {
      const std::size_t bytes = static_cast<std::size_t>(range.count) * row_bytes;
      std::memcpy(to, from + static_cast<std::size_t>(range.first) * row_bytes, bytes);
      to += bytes;
    }
    *part.out = {static_cast<int>(count), whole.cols, whole.type, copy.data()};
  }
  return {};
}

Status TensorReader::vector(const std::string& name, std::vector<std::int64_t> shape, float added,
                            std::vector<float>& out) {
  const auto tensor = find(name, shape);
  if (!tensor) return tensor.error();
  const StoredTensor& stored = **tensor;
  const std::size_t width = size_of(stored.type);
  out.resize(stored.data.size() / width);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = element(stored.data.data() + i * width, stored.type) + added;
  }
  return {};
}

Status TensorReader::check_all_used() const {
  for (const auto& [name, entry] : files_.entries()) {
    if (used_.contains(name) || belongs_elsewhere(name) || name.ends_with("rotary_emb.inv_freq")) {
      continue;
    }
    return Error{fmt::format(
        "{}: tensor {} ({} {}): nothing in config.json calls for it; expected only the tensors "
        "of the described layers, model.visual.* and mtp.*",
        entry.file->label(), name, name_of(entry.tensor->type), shape_text(entry.tensor->shape))};
  }
  return {};
}

}  // namespace replayssm
