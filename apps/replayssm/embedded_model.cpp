#include "embedded_model.h"

#include <system_error>

namespace replayssm::cli {

Result<std::filesystem::path> embedded_model() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path installed =
      (program.parent_path() / "../share/replayssm/models/tiny").lexically_normal();
  const fs::path source = REPLAYSSM_SOURCE_MODEL;
  for (const fs::path& directory : {installed, source}) {
    if (fs::exists(directory / "config.json", error)) return directory;
  }
  return Error{
      fmt::format("the embedded model is neither in {} nor in {}; name one with "
                  "--model-path",
                  installed.string(), source.string())};
}

Result<std::filesystem::path> embedded_drafter(SpeculativeAlgorithm algorithm) {
  const auto model = embedded_model();
  if (!model) return model.error();
  const bool dspark = algorithm == SpeculativeAlgorithm::dspark;
  const std::filesystem::path drafter =
      model->parent_path() / (dspark ? "tiny-dspark" : "tiny-dflash2");
  std::error_code error;
  if (std::filesystem::exists(drafter / "config.json", error)) return drafter;
  return Error{
      fmt::format("--speculative-algorithm: {} has no drafter in {}; name one with "
                  "--speculative-draft-model-path",
                  name_of(algorithm), drafter.string())};
}

}  // namespace replayssm::cli
