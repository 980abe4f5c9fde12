#include "model/tensor_reader.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "core/bfloat16.h"
#include "model/dummy_weights.h"
#include "model/float8.h"

namespace replayssm {
namespace {

constexpr std::string_view kScale = ".weight_scale_inv";
constexpr auto kFloats = {StoredType::bf16, StoredType::f16, StoredType::f32};
constexpr auto kFloatsAndFloat8 = {StoredType::bf16, StoredType::f16, StoredType::f32,
                                   StoredType::f8_e4m3};

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

void widen(const StoredTensor& stored, float added, std::vector<float>& out) {
  const std::size_t width = size_of(stored.type);
  out.resize(stored.data.size() / width);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = element(stored.data.data() + i * width, stored.type) + added;
  }
}

}  // namespace

std::string TensorReader::label(const std::string& name) const {
  return fmt::format("{}: tensor {}", files_->find(name)->file->label(), name);
}

Result<const StoredTensor*> TensorReader::find(const std::string& name,
                                               const std::vector<std::int64_t>& shape,
                                               std::initializer_list<StoredType> types) {
  const CheckpointFiles::Entry* entry = files_->find(name);
  if (entry == nullptr) {
    return Error{fmt::format("tensor {}: missing; expected {}", name, shape_text(shape))};
  }
  const StoredTensor& tensor = *entry->tensor;
  if (tensor.shape != shape) {
    return Error{fmt::format("{}: shape {}; expected {}", label(name), shape_text(tensor.shape),
                             shape_text(shape))};
  }
  if (std::find(types.begin(), types.end(), tensor.type) == types.end()) {
    std::string accepted;
    for (const StoredType& type : types) {
      const bool last = &type + 1 == types.end();
      accepted += fmt::format("{}{}", accepted.empty() ? "" : last ? " or " : ", ", name_of(type));
    }
    return Error{
        fmt::format("{}: dtype {}; expected {}", label(name), name_of(tensor.type), accepted)};
  }
  used_.insert(name);
  return &tensor;
}

Status TensorReader::read_matrix(const std::string& name, std::int64_t rows, std::int64_t cols,
                                 Float8 float8, Copies& copies, WeightMatrix& out) {
  const std::string module = name.substr(0, name.rfind('.'));
  if (files_ == nullptr) {
    out = {};
    out.rows = static_cast<int>(rows);
    out.cols = static_cast<int>(cols);
    out.float8 = shapes_only_ && float8 == Float8::kept && quantisation_.float8_blocks &&
                 !quantisation_.excludes(module);
    if (!shapes_only_) out.data = copies.emplace_back(dummy_matrix(name, rows, cols)).data();
    bytes_ += out.bytes();
    return {};
  }
  const auto tensor = quantisation_.float8_blocks ? find(name, {rows, cols}, kFloatsAndFloat8)
                                                  : find(name, {rows, cols}, kFloats);
  if (!tensor) return tensor.error();
  out.rows = static_cast<int>(rows);
  out.cols = static_cast<int>(cols);
  if ((*tensor)->type == StoredType::f8_e4m3) {
    REPLAYSSM_TRY(read_float8(module, **tensor, float8, copies, out));
  } else {
    if (quantisation_.float8_blocks && has(module + std::string(kScale))) {
      return Error{fmt::format("{}: dtype {} beside {}{}; expected F8_E4M3", label(name),
                               name_of((*tensor)->type), module, kScale)};
    }
    out.type = *dtype_of((*tensor)->type);
    out.data = aligned((*tensor)->data, size_of(out.type), copies);
  }
  bytes_ += out.bytes();
  return {};
}

Status TensorReader::read_float8(const std::string& module, const StoredTensor& codes,
                                 Float8 float8, Copies& copies, WeightMatrix& out) {
  if (quantisation_.excludes(module)) {
    return Error{fmt::format(
        "{}: dtype F8_E4M3, although quantization_config.modules_to_not_convert names it; expected "
        "BF16, F16 or F32",
        label(codes.name))};
  }
  std::vector<float> scales;
  const std::vector<std::int64_t> blocks{float8_blocks(out.rows), float8_blocks(out.cols)};
  const auto stored =
      find(module + std::string(kScale), blocks, {StoredType::bf16, StoredType::f32});
  if (!stored) return stored.error();
  widen(**stored, 0, scales);
  const bool kept = float8 == Float8::kept;
  AlignedBuffer<std::byte>& copy = copies.emplace_back(
      kept ? scales.size() * sizeof(float) : codes.data.size() * size_of(DType::bf16));
  const Status done = kept ? check_float8(codes.data, out.rows, out.cols, scales)
                           : dequantise_float8(codes.data, out.rows, out.cols, scales,
                                               reinterpret_cast<bf16*>(copy.data()));
  if (!done) return Error{fmt::format("{}: {}", label(codes.name), done.error().message)};
  out.type = DType::bf16;
  out.data = copy.data();
  if (kept) {
    std::memcpy(copy.data(), scales.data(), scales.size() * sizeof(float));
    out.data = codes.data.data();
    out.float8 = true;
    out.block_scales = reinterpret_cast<const float*>(copy.data());
  }
  return {};
}

Status TensorReader::matrix(const std::string& name, std::int64_t rows, std::int64_t cols,
                            WeightMatrix& out) {
  return read_matrix(name, rows, cols, float8_, copies_, out);
}

Status TensorReader::table(const std::string& name, std::int64_t rows, std::int64_t cols,
                           WeightMatrix& out) {
  return read_matrix(name, rows, cols, Float8::dequantised, copies_, out);
}

Status TensorReader::parts(const std::string& name, std::int64_t rows, std::int64_t cols,
                           std::span<const MatrixPart> parts) {
  Copies temporary;
  WeightMatrix whole;
  REPLAYSSM_TRY(read_matrix(name, rows, cols, Float8::dequantised, temporary, whole));
  const std::size_t row_bytes = static_cast<std::size_t>(cols) * size_of(whole.type);
  const auto* from = static_cast<const std::byte*>(whole.data);
  for (const MatrixPart& part : parts) {
    std::int64_t count = 0;
    for (const RowRange& range : part.rows) count += range.count;
    *part.out = {static_cast<int>(count), whole.cols, whole.type, nullptr};
    if (from == nullptr) continue;
    AlignedBuffer<std::byte>& copy =
        copies_.emplace_back(static_cast<std::size_t>(count) * row_bytes);
    std::byte* to = copy.data();
    for (const RowRange& range : part.rows) {
      const std::size_t bytes = static_cast<std::size_t>(range.count) * row_bytes;
      std::memcpy(to, from + static_cast<std::size_t>(range.first) * row_bytes, bytes);
      to += bytes;
    }
    part.out->data = copy.data();
  }
  return {};
}

Status TensorReader::vector(const std::string& name, std::vector<std::int64_t> shape, float added,
                            std::vector<float>& out) {
  if (files_ == nullptr) {
    const auto elements =
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    out = dummy_vector(name, elements, added);
    bytes_ += static_cast<std::int64_t>(out.size() * sizeof(bf16));
    return {};
  }
  const auto tensor = find(name, shape, kFloats);
  if (!tensor) return tensor.error();
  widen(**tensor, added, out);
  bytes_ += static_cast<std::int64_t>((*tensor)->data.size());
  return {};
}

Status TensorReader::leave_out(const std::string& name, const std::vector<std::int64_t>& shape) {
  const auto tensor = find(name, shape, kFloatsAndFloat8);
  return tensor ? Status{} : Status{tensor.error()};
}

Status TensorReader::check_all_used(std::span<const std::string_view> owned_by_others) const {
  if (files_ == nullptr) return {};
  for (const auto& [name, entry] : files_->entries()) {
    const bool elsewhere =
        std::any_of(owned_by_others.begin(), owned_by_others.end(),
                    [&](std::string_view prefix) { return name.starts_with(prefix); });
    if (used_.contains(name) || elsewhere || name.ends_with("rotary_emb.inv_freq")) continue;
    std::string others;
    for (const std::string_view prefix : owned_by_others) others += fmt::format(", {}*", prefix);
    return Error{
        fmt::format("{}: tensor {} ({} {}): nothing in config.json calls for it; expected only the "
                    "tensors of the described layers{}",
                    entry.file->label(), name, name_of(entry.tensor->type),
                    shape_text(entry.tensor->shape), others)};
  }
  return {};
}

}  // namespace replayssm
