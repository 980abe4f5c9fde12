// What this process has used of its processors.
#pragma once

#include <ctime>

namespace replayssm {

// Seconds of processor time, of all threads, since the process began.
inline double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace replayssm
