#include "test_checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "core/bfloat16.h"
#include "model/safetensors.h"
#include "source_dir.h"

namespace replayssm {
namespace {

namespace fs = std::filesystem;

fs::path new_directory() {
  static std::atomic<int> number{0};
  const fs::path path = fs::path(testing::TempDir()) / ("replayssm_" + std::to_string(::getpid()) +
                                                        "_" + std::to_string(number.fetch_add(1)));
  fs::create_directories(path);
  return path;
}

// The test data's values are small normal numbers; this is enough for them.
std::uint16_t to_half(float x) {
  std::uint16_t best = 0;
  const std::uint16_t sign = x < 0 ? 0x8000 : 0;
  const float magnitude = x < 0 ? -x : x;
  // Finite halves are ordered like their bits.
  std::uint16_t low = 0;
  std::uint16_t high = 0x7bff;
  while (low <= high) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    if (half_to_float(middle) <= magnitude) {
      best = middle;
      low = static_cast<std::uint16_t>(middle + 1);
    } else {
      high = static_cast<std::uint16_t>(middle - 1);
    }
  }
  return static_cast<std::uint16_t>(best | sign);
}

}  // namespace

std::string safetensors_text(const EditableTensors& tensors, int header_padding) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::size_t end = 0;
  for (const auto& [name, tensor] : tensors) {
    header[name]["dtype"] = tensor.dtype;
    header[name]["shape"] = tensor.shape;
    header[name]["data_offsets"] = {end, end + tensor.data.size()};
    end += tensor.data.size();
  }
  std::string text = header.dump();
  while (text.size() % 8 != 0) text += ' ';
  text.append(static_cast<std::size_t>(header_padding), ' ');
  const auto length = static_cast<std::uint64_t>(text.size());
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  file += text;
  for (const auto& [name, tensor] : tensors) {
    file.append(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
  }
  return file;
}

void permute_rows(EditableTensor& tensor, const std::vector<std::size_t>& order) {
  const std::size_t row = tensor.data.size() / static_cast<std::size_t>(tensor.shape[0]);
  std::vector<std::byte> permuted;
  for (const std::size_t from : order) {
    const auto begin = tensor.data.begin() + static_cast<std::ptrdiff_t>(from * row);
    permuted.insert(permuted.end(), begin, begin + static_cast<std::ptrdiff_t>(row));
  }
  if (permuted.size() != tensor.data.size()) throw std::logic_error("not a permutation of rows");
  tensor.data = std::move(permuted);
}

std::vector<float> values_of(const EditableTensor& tensor) {
  const std::size_t width = tensor.dtype == "F32" ? 4 : 2;
  std::vector<float> values(tensor.data.size() / width);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits = 0;
    if (tensor.dtype == "F32") {
      std::memcpy(&values[i], tensor.data.data() + i * width, width);
      continue;
    }
    std::memcpy(&bits, tensor.data.data() + i * width, width);
    values[i] = tensor.dtype == "BF16" ? to_float(bf16{bits}) : half_to_float(bits);
  }
  return values;
}

void set_values(EditableTensor& tensor, const std::vector<float>& values) {
  const std::size_t width = tensor.dtype == "F32" ? 4 : 2;
  tensor.data.resize(values.size() * width);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits =
        tensor.dtype == "BF16" ? to_bf16(values[i]).bits : to_half(values[i]);
    const void* from = tensor.dtype == "F32" ? static_cast<const void*>(&values[i]) : &bits;
    std::memcpy(tensor.data.data() + i * width, from, width);
  }
}

TestCheckpoint::TestCheckpoint(std::string_view copy_of) : path_(new_directory()) {
  const fs::path from = source_dir() / "tests/data/model" / copy_of;
  for (const auto& entry : fs::directory_iterator(from)) {
    if (entry.path().filename() == "golden.safetensors") continue;
    fs::copy(entry.path(), path_ / entry.path().filename());
  }
}

TestCheckpoint::~TestCheckpoint() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void TestCheckpoint::write(const std::string& file, std::string_view text) const {
  std::ofstream out(path_ / file, std::ios::binary);
  out << text;
  if (!out) throw std::runtime_error("cannot write " + file);
}

std::string TestCheckpoint::read(const std::string& file) const {
  std::ifstream in(path_ / file, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void TestCheckpoint::remove(const std::string& file) const { fs::remove(path_ / file); }

void TestCheckpoint::edit_config(const std::function<void(nlohmann::json&)>& edit) const {
  auto config = nlohmann::json::parse(read("config.json"));
  edit(config);
  write("config.json", config.dump());
}

void TestCheckpoint::edit_tensors(const std::function<void(EditableTensors&)>& edit) const {
  EditableTensors tensors;
  std::vector<fs::path> shards;
  for (const auto& entry : fs::directory_iterator(path_)) {
    if (entry.path().extension() == ".safetensors") shards.push_back(entry.path());
  }
  for (const fs::path& shard : shards) {
    {
      const auto file = SafetensorsFile::open(shard);
      if (!file) throw std::runtime_error(file.error().message);
      for (const StoredTensor& tensor : file->tensors()) {
        tensors[tensor.name] = {std::string(name_of(tensor.type)),
                                tensor.shape,
                                {tensor.data.begin(), tensor.data.end()}};
      }
    }
    fs::remove(shard);
  }
  fs::remove(path_ / "model.safetensors.index.json");
  edit(tensors);
  write("model.safetensors", safetensors_text(tensors));
}

void TestCheckpoint::poison_embedding(int token) const {
  edit_tensors([token](EditableTensors& tensors) {
    for (auto& [name, tensor] : tensors) {
      if (name.find("embed_tokens.weight") == std::string::npos) continue;
      std::vector<float> values = values_of(tensor);
      const std::int64_t hidden = tensor.shape[1];
      std::fill_n(values.begin() + token * hidden, hidden, std::numeric_limits<float>::quiet_NaN());
      set_values(tensor, values);
    }
  });
}

}  // namespace replayssm
