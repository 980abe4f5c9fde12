// The instruction sets that the CPU backend can run on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace replayssm {

// Those that were compiled and that this machine has, best first: of "avx512", "avx2", "sse4" and
// "scalar" on x86. "scalar" is always there.
std::vector<std::string> cpu_isas();

// Makes every vectorised function of this process use the named instruction set from the next call
// on; "auto" goes back to the best one. Not while operations are running. Errors list what is
// accepted here.
Status force_cpu_isa(std::string_view name);

// The one in use, as cpu_isas() names it.
std::string_view cpu_isa();

}  // namespace replayssm
