// A checkpoint directory that a test may change: a copy of one of tests/data/model in a temporary
// place, removed at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace replayssm {

// A tensor of a safetensors file, free to be changed.
struct EditableTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;
};

using EditableTensors = std::map<std::string, EditableTensor>;

// A well-formed safetensors file with these tensors in the order of their names. Bytes of padding
// in front of the header's closing brace move the data to another alignment.
std::string safetensors_text(const EditableTensors& tensors, int header_padding = 0);

// Puts rows [rows, columns] in another order: row i of the result is row order[i] of `tensor`.
void permute_rows(EditableTensor& tensor, const std::vector<std::size_t>& order);

// Values of F32, F16 or BF16 tensors as floats, and back with rounding.
std::vector<float> values_of(const EditableTensor& tensor);
void set_values(EditableTensor& tensor, const std::vector<float>& values);

class TestCheckpoint {
 public:
  // Without golden.safetensors.
  explicit TestCheckpoint(std::string_view copy_of);
  ~TestCheckpoint();
  TestCheckpoint(const TestCheckpoint&) = delete;
  TestCheckpoint& operator=(const TestCheckpoint&) = delete;

  const std::filesystem::path& path() const { return path_; }

  void write(const std::string& file, std::string_view text) const;
  std::string read(const std::string& file) const;
  void remove(const std::string& file) const;

  // Changes config.json.
  void edit_config(const std::function<void(nlohmann::json&)>& edit) const;
  // Reads the tensors of all shards, lets `edit` change them, and writes one model.safetensors.
  void edit_tensors(const std::function<void(EditableTensors&)>& edit) const;
  // Makes the embedding of one token NaN.
  void poison_embedding(int token) const;

 private:
  std::filesystem::path path_;
};

}  // namespace replayssm
