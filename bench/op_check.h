// The correctness check that every timing begins with.
#pragma once

#include "op_bench.h"

namespace replayssm::bench {

// Runs the operation on a few rows with `ops` and with the float64 reference over two ring cycles
// from depth 0; the relative L2 difference of everything it put out.
Result<double> check_op(const BenchOptions& options, LinearOps& ops);

}  // namespace replayssm::bench
