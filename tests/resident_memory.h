// How much memory this process has.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace replayssm {

// Bytes of this process that are in memory; 0 where the system does not say.
inline std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t pages = 0;
  statm >> pages >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

}  // namespace replayssm
