// Any bytes as a case for the operations: the float64 reference and every instruction set of the
// CPU agree. tests/property/differential_fuzz_test.cpp runs the same cases from seeds.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "property/differential_case.h"

// Small cases: with sanitizers and without optimisation a large one takes a minute.
constexpr replayssm::tests::CaseLimits kLimits{2, 2, 6, 40};

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The case's own expectations stop the fuzzer as well.
  GTEST_FLAG_SET(throw_on_failure, true);
  const std::string found = replayssm::tests::differences({data, size}, kLimits);
  if (found.empty()) return 0;
  std::fprintf(stderr, "%s\n", found.c_str());
  std::abort();
}
