#include <gtest/gtest.h>

#include "ceilings.h"

namespace replayssm::bench {
namespace {

// How fast memory is depends on the machine; that every walk was timed over the bytes it claims
// does not: no memory moves a terabyte a second to two threads, and none takes a second for 100 MB.
TEST(Ceilings, AreSpeedsThatAMemoryCanHave) {
  ThreadPool pool(2);
  const Ceilings ceilings = measure_ceilings(pool, std::size_t{16} << 20);
  for (const double speed :
       {ceilings.read_gb_per_s, ceilings.update_gb_per_s, ceilings.copy_gb_per_s}) {
    EXPECT_GT(speed, 0.1);
    EXPECT_LT(speed, 1000);
  }
}

}  // namespace
}  // namespace replayssm::bench
