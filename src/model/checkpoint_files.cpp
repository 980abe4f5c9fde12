#include "model/checkpoint_files.h"

#include <fmt/format.h>

#include <set>
#include <system_error>

#include "model/json_file.h"

namespace replayssm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";

bool is_there(const fs::path& file) {
  std::error_code error;
  return fs::exists(file, error);
}

// An index must not lead out of its directory.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace

Result<CheckpointFiles> CheckpointFiles::open(const fs::path& directory) {
  CheckpointFiles checkpoint;
  if (is_there(directory / kSingle)) {
    auto file = SafetensorsFile::open(directory / kSingle);
    if (!file) return file.error();
    checkpoint.files_.push_back(std::move(*file));
    REPLAYSSM_TRY(checkpoint.add_tensors());
    return checkpoint;
  }
  if (!is_there(directory / kIndex)) {
    return Error{
        fmt::format("{}: no weights; expected {} or {}", directory.string(), kSingle, kIndex)};
  }
  REPLAYSSM_TRY(checkpoint.open_shards(directory / kIndex));
  return checkpoint;
}

Status CheckpointFiles::open_shards(const fs::path& index) {
  auto root = read_json_object(index);
  if (!root) return root.error();
  auto map = Fields(*root, fmt::format("{}: ", kIndex)).object("weight_map");
  if (!map) return map.error();
  const nlohmann::json& weight_map = root->at("weight_map");

  std::set<std::string> shards;
  for (const auto& [tensor, shard] : weight_map.items()) {
    if (!shard.is_string() || !is_plain_name(shard.get_ref<const std::string&>())) {
      return refuse(map->name(tensor), describe(shard), "the name of a file in the directory");
    }
    const auto& name = shard.get_ref<const std::string&>();
    if (shards.contains(name)) continue;
    if (!is_there(index.parent_path() / name)) {
      return Error{fmt::format("{}: shard {} of tensor {} is missing", kIndex, name, tensor)};
    }
    shards.insert(name);
  }
  for (const std::string& shard : shards) {
    auto file = SafetensorsFile::open(index.parent_path() / shard);
    if (!file) return file.error();
    files_.push_back(std::move(*file));
  }
  REPLAYSSM_TRY(add_tensors());

  for (const auto& [tensor, shard] : weight_map.items()) {
    const Entry* entry = find(tensor);
    const auto& name = shard.get_ref<const std::string&>();
    if (entry == nullptr || entry->file->label() != name) {
      return Error{fmt::format("{}: tensor {} is not in {}", kIndex, tensor, name)};
    }
  }
  return {};
}

Status CheckpointFiles::add_tensors() {
  for (const SafetensorsFile& file : files_) {
    for (const StoredTensor& tensor : file.tensors()) {
      const auto [at, added] = entries_.try_emplace(tensor.name, Entry{&tensor, &file});
      if (!added) {
        return Error{fmt::format("tensor {} is in both {} and {}", tensor.name,
                                 at->second.file->label(), file.label())};
      }
    }
  }
  return {};
}

const CheckpointFiles::Entry* CheckpointFiles::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

}  // namespace replayssm
