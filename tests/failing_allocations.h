// For test programs that link failing_allocations.cpp: an allocation that fails when it is told to.
#pragma once

namespace replayssm {

// The allocation number `after` from now (0: the next one) of the calling thread throws
// std::bad_alloc; those after it work again. Below 0: none fails.
void fail_allocation(long after);

// What is left of the count; below 0: it has come, or was never asked for.
long allocations_until_failure();

}  // namespace replayssm
