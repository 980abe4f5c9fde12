// What this machine's memory can do, measured in the same run as the operations.
#pragma once

#include <cstddef>

#include "core/thread_pool.h"

namespace replayssm::bench {

struct Ceilings {
  double copy_gb_per_s = 0;    // bytes read + written, out of place
  double update_gb_per_s = 0;  // bytes read + written, in place
  double read_gb_per_s = 0;    // bytes read
};

// The fastest pass over at least `bytes` bytes by all threads of the pool, of several ways to walk
// through them (ceilings.cpp lists these) and three passes of each.
Ceilings measure_ceilings(ThreadPool& pool, std::size_t bytes);

// Of each the higher: what is measured before and after something else bounds it from both sides.
Ceilings higher(const Ceilings& a, const Ceilings& b);

// Size of the last-level cache in bytes; 32 MiB where the system does not say.
std::size_t last_level_cache_bytes();

}  // namespace replayssm::bench
