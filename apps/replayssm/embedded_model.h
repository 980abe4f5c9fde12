// The model that comes with the program.
#pragma once

#include <filesystem>

#include "core/result.h"
#include "spec/speculation.h"

namespace replayssm::cli {

// models/tiny: beside an installed program (../share/replayssm/models/tiny), else in the source
// tree that the program was built from. Refused, naming both places, when it is in neither.
Result<std::filesystem::path> embedded_model();

// Its drafter of this kind, in a directory beside it: models/tiny-dflash2 or models/tiny-dspark.
// Refused where there is none. Precondition: has_draft_model(algorithm).
Result<std::filesystem::path> embedded_drafter(SpeculativeAlgorithm algorithm);

}  // namespace replayssm::cli
