#include "engine/model_fingerprint.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace replayssm {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kPart = std::uintmax_t{64} * 1024;

struct HashState {
  XXH3_state_t* state = XXH3_createState();
  HashState() { XXH3_64bits_reset(state); }
  ~HashState() { XXH3_freeState(state); }
  HashState(const HashState&) = delete;
  HashState& operator=(const HashState&) = delete;
  void add(const void* data, std::size_t bytes) { XXH3_64bits_update(state, data, bytes); }
};

Status add_part(HashState& hash, const fs::path& path, std::uintmax_t from, std::uintmax_t bytes) {
  std::ifstream file(path, std::ios::binary);
  std::string part(static_cast<std::size_t>(bytes), '\0');
  file.seekg(static_cast<std::streamoff>(from));
  file.read(part.data(), static_cast<std::streamsize>(bytes));
  if (!file) return Error{fmt::format("{}: cannot be read", path.string())};
  hash.add(part.data(), part.size());
  return {};
}

}  // namespace

Result<std::uint64_t> model_fingerprint(const fs::path& directory) {
  std::error_code error;
  std::vector<fs::path> files{directory / "config.json"};
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") files.push_back(it->path());
  }
  if (error) return Error{fmt::format("{}: {}", directory.string(), error.message())};
  std::sort(files.begin() + 1, files.end());

  HashState hash;
  for (const fs::path& file : files) {
    const std::uintmax_t size = fs::file_size(file, error);
    if (error) return Error{fmt::format("{}: {}", file.string(), error.message())};
    const std::string name = file.filename().string();
    hash.add(name.data(), name.size());
    hash.add(&size, sizeof(size));
    const std::uintmax_t part = std::min(size, kPart);
    REPLAYSSM_TRY(add_part(hash, file, 0, part));
    REPLAYSSM_TRY(add_part(hash, file, size - part, part));
  }
  return XXH3_64bits_digest(hash.state);
}

}  // namespace replayssm
