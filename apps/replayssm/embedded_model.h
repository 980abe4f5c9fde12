// The model that comes with the program.
#pragma once

#include <filesystem>

#include "core/result.h"

namespace replayssm::cli {

// models/tiny: beside an installed program (../share/replayssm/models/tiny), else in the source
// tree that the program was built from. Refused, naming both places, when it is in neither.
Result<std::filesystem::path> embedded_model();

}  // namespace replayssm::cli
