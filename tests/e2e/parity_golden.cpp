#include "e2e/parity_golden.h"
#include "source_dir.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace replayssm {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

SafetensorsFile opened(const std::filesystem::path& path) {
  auto file = SafetensorsFile::open(path);
  if (!file) throw std::runtime_error(file.error().message);
  return std::move(*file);
}

template <class T>
std::vector<T> values_of(const StoredTensor& tensor, StoredType type) {
  if (tensor.type != type) throw std::runtime_error(tensor.name + ": unexpected type");
  std::vector<T> values(tensor.data.size() / sizeof(T));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

}  // namespace

std::filesystem::path checkpoint_directory(std::string_view name) {
  return source_dir() / "tests/data/model" / name;
}

Golden::Golden(std::string_view checkpoint)
    : file_(opened(checkpoint_directory(checkpoint) / "golden.safetensors")) {}

const StoredTensor& Golden::tensor(std::string_view name) const {
  const StoredTensor* found = file_.find(name);
  if (found == nullptr) throw std::runtime_error("no golden tensor " + std::string(name));
  return *found;
}

std::vector<float> Golden::floats(std::string_view name) const {
  return values_of<float>(tensor(name), StoredType::f32);
}

std::vector<TokenId> Golden::ids(std::string_view name) const {
  return values_of<TokenId>(tensor(name), StoredType::i32);
}

std::vector<float> columns_of(const std::vector<float>& values, int width, int columns) {
  std::vector<float> kept;
  for (std::size_t at = 0; at < values.size(); at += width) {
    const auto row = std::span(values).subspan(at, columns);
    kept.insert(kept.end(), row.begin(), row.end());
  }
  return kept;
}

double root_mean_square(std::span<const float> values) {
  double sum = 0;
  for (const float x : values) sum += static_cast<double>(x) * x;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size() || a.empty()) return kInfinite;
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return kInfinite;
    difference = std::max(difference, std::abs(static_cast<double>(a[i]) - b[i]));
    size = std::max(size, std::abs(static_cast<double>(b[i])));
  }
  return difference / size;
}

double relative_distance(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size() || a.empty()) return kInfinite;
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return kInfinite;
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

}  // namespace replayssm
