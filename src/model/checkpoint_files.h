// The safetensors files of a checkpoint directory as one table of tensors.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "model/safetensors.h"

namespace replayssm {

// Owns the mapped files. Move-only; tensors stay valid when it is moved.
class CheckpointFiles {
 public:
  struct Entry {
    const StoredTensor* tensor = nullptr;
    const SafetensorsFile* file = nullptr;
  };

  // Opens model.safetensors or, where there is none, every shard that model.safetensors.index.json
  // names. Errors name the file: none of the two there, a shard that is missing, a shard name that
  // is a path, a tensor that the index promises and its shard does not hold, a tensor that two
  // shards hold.
  static Result<CheckpointFiles> open(const std::filesystem::path& directory);

  const Entry* find(std::string_view name) const;  // null where there is none
  // Ascending by name.
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }

 private:
  CheckpointFiles() = default;

  Status open_shards(const std::filesystem::path& index);
  Status add_tensors();

  std::vector<SafetensorsFile> files_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace replayssm
