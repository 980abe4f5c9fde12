// Tells one checkpoint from another.
#pragma once

#include <cstdint>
#include <filesystem>

#include "core/result.h"

namespace replayssm {

// XXH3 over config.json, and name, size, first and last 64 KiB of every safetensors file of a
// Hugging Face directory: enough to notice another model, quick enough for every start. Errors name
// the file that cannot be read.
Result<std::uint64_t> model_fingerprint(const std::filesystem::path& directory);

}  // namespace replayssm
