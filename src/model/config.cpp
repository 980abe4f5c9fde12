#include "model/config.h"

#include <algorithm>

namespace replayssm {

int ModelConfig::count(LayerKind kind) const {
  return static_cast<int>(std::count(layers.begin(), layers.end(), kind));
}

bool ModelConfig::is_eos(TokenId token) const {
  return std::binary_search(eos.begin(), eos.end(), token);
}

Result<ModelConfig> load_config(const std::filesystem::path& directory) {
  return Error{fmt::format("{}: loading is not built yet", directory.string())};
}

}  // namespace replayssm
