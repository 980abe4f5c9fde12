// Finds the tensors of a checkpoint by name, checks them against what the configuration calls for,
// and remembers which were used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/result.h"
#include "model/checkpoint_files.h"
#include "model/weights.h"

namespace replayssm {

// Consecutive rows of a matrix.
struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// The rows of a stored matrix that make up another one, in this order.
struct MatrixPart {
  WeightMatrix* out = nullptr;
  std::vector<RowRange> rows;
};

// What the tensors in use lie in.
struct CheckpointStorage {
  std::optional<CheckpointFiles> files;          // none: all weights are copies
  bool shapes_only = false;                      // without files: matrices have no data
  std::vector<AlignedBuffer<std::byte>> copies;  // matrices that could not stay as stored
};

// Errors of its functions name tensor, file, what it is and what is expected.
class TensorReader {
 public:
  // `storage` outlives the reader and every matrix that it hands out. Matrices that cannot stay as
  // they are stored are converted into copies. Without files every tensor that is asked for is
  // there, with random values (dummy_weights.h), matrices in bf16.
  TensorReader(CheckpointStorage& storage, const Quantisation& quantisation,
               Float8 float8 = Float8::dequantised)
      : files_(storage.files ? &*storage.files : nullptr),
        quantisation_(quantisation),
        float8_(float8),
        shapes_only_(storage.shapes_only),
        copies_(storage.copies) {}

  bool has(std::string_view name) const { return entry_of(name) != nullptr; }
  // The shape of a tensor; empty where there is none.
  std::vector<std::int64_t> shape_of(std::string_view name) const {
    const CheckpointFiles::Entry* entry = entry_of(name);
    return entry == nullptr ? std::vector<std::int64_t>{} : entry->tensor->shape;
  }

  // A matrix [rows, cols] of bf16, f16 or f32, as stored; or of float8 blocks, as bf16 or kept.
  // `name` ends in ".weight".
  Status matrix(const std::string& name, std::int64_t rows, std::int64_t cols, WeightMatrix& out);

  // The same, but never kept as float8: an embedding, or a head.
  Status table(const std::string& name, std::int64_t rows, std::int64_t cols, WeightMatrix& out);

  // Matrices that are stored as one, [rows, cols], each of them a copy. Every row belongs to one
  // part.
  Status parts(const std::string& name, std::int64_t rows, std::int64_t cols,
               std::span<const MatrixPart> parts);

  // A vector, or anything else that is small, widened to fp32, with `added` put on top: 1 turns the
  // w of a zero-centred norm into its scale.
  Status vector(const std::string& name, std::vector<std::int64_t> shape, float added,
                std::vector<float>& out);

  // A tensor that is left out, because another file's takes its place: it must have this shape.
  Status leave_out(const std::string& name, const std::vector<std::int64_t>& shape);

  // A tensor that the configuration does not call for means that the model is not the one the
  // configuration describes: refused rather than left out. Names that begin with one of
  // `owned_by_others` are other readers' business.
  Status check_all_used(std::span<const std::string_view> owned_by_others = {}) const;

  // Of the tensors used so far, as they are used.
  std::int64_t bytes() const { return bytes_; }

 private:
  const CheckpointFiles::Entry* entry_of(std::string_view name) const {
    return files_ == nullptr ? nullptr : files_->find(name);
  }

  using Copies = std::vector<AlignedBuffer<std::byte>>;

  Status read_matrix(const std::string& name, std::int64_t rows, std::int64_t cols, Float8 float8,
                     Copies& copies, WeightMatrix& out);
  Status read_float8(const std::string& module, const StoredTensor& codes, Float8 float8,
                     Copies& copies, WeightMatrix& out);
  // The tensor, of the given shape and one of the types.
  Result<const StoredTensor*> find(const std::string& name, const std::vector<std::int64_t>& shape,
                                   std::initializer_list<StoredType> types);
  // In which file it is and what it is, for errors.
  std::string label(const std::string& name) const;

  const CheckpointFiles* files_ = nullptr;  // null: random values
  const Quantisation& quantisation_;
  Float8 float8_;
  bool shapes_only_;
  Copies& copies_;
  std::set<std::string, std::less<>> used_;
  std::int64_t bytes_ = 0;
};

}  // namespace replayssm
