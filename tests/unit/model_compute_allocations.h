// Counts every allocation of the test program that links this.
#pragma once

namespace replayssm {

// Calls of operator new so far, all threads.
long allocations();

}  // namespace replayssm
