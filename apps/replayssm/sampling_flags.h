// The flags that decide how tokens are chosen.
#pragma once

#include <CLI/CLI.hpp>

#include "core/result.h"
#include "engine/sampling_params.h"

namespace replayssm::cli {

struct SamplingFlags {
  SamplingRequest request;

  void add_to(CLI::App& command);

  // Request over the checkpoint's defaults; a random seed where none is given. Errors name the
  // flag.
  Result<SamplingParams> resolve(const GenerationDefaults& defaults) const;
};

}  // namespace replayssm::cli
