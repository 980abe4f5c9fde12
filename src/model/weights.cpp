#include "model/weights.h"

namespace replayssm {

struct Weights::Storage {};

Weights::Weights() = default;
Weights::~Weights() = default;
Weights::Weights(Weights&&) noexcept = default;
Weights& Weights::operator=(Weights&&) noexcept = default;

Result<Weights> load_weights(const std::filesystem::path& directory, const ModelConfig&) {
  return Error{fmt::format("{}: loading is not built yet", directory.string())};
}

}  // namespace replayssm
