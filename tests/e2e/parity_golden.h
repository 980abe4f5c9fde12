// The golden file of a checkpoint in tests/data/model, and distances from it.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/strong_id.h"
#include "model/safetensors.h"

namespace replayssm {

// tests/data/model/NAME.
std::filesystem::path checkpoint_directory(std::string_view name);

// What transformers computed; the generator in tools/goldens_model lists the names. Throws for a
// name that is not there.
class Golden {
 public:
  explicit Golden(std::string_view checkpoint);

  bool has(std::string_view name) const { return file_.find(name) != nullptr; }
  std::vector<float> floats(std::string_view name) const;
  std::vector<TokenId> ids(std::string_view name) const;

 private:
  const StoredTensor& tensor(std::string_view name) const;

  SafetensorsFile file_;
};

// The first `columns` of each row of [rows, width].
std::vector<float> columns_of(const std::vector<float>& values, int width, int columns);

double root_mean_square(std::span<const float> values);

// The largest |a - b| over the largest |b|. Infinite where the sizes differ or a value is not
// finite.
double largest_difference(std::span<const float> a, std::span<const float> b);

// |a - b|_2 / |b|_2; infinite likewise.
double relative_distance(std::span<const float> a, std::span<const float> b);

}  // namespace replayssm
