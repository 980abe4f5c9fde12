// How much memory this machine lets us use.
#pragma once

#include <cstdint>

namespace replayssm {

// Bytes: the physical memory that is available now, or what is left below the control group's limit
// where that is less. The default of the memory budget.
std::int64_t available_memory();

}  // namespace replayssm
