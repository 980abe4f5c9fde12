#include "source_dir.h"

namespace replayssm {

std::filesystem::path source_dir() { return REPLAYSSM_SOURCE_DIR; }

}  // namespace replayssm
