// Random cases from seeds: the reference and every instruction set of the CPU agree.
// REPLAYSSM_FUZZ_SEED and REPLAYSSM_FUZZ_CASES choose where to start and how many to run.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "property/differential_case.h"
#include "rounds.h"

namespace replayssm::tests {
namespace {

int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

TEST(DifferentialFuzz, AllImplementationsAgree) {
  const int first = from_environment("REPLAYSSM_FUZZ_SEED", 1);
  const int cases = from_environment("REPLAYSSM_FUZZ_CASES", rounds(40));
  for (int seed = first; seed < first + cases; ++seed) {
    std::mt19937 random(static_cast<std::uint32_t>(seed));
    std::vector<std::uint8_t> bytes(20 + random() % 120);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    ASSERT_EQ(differences(bytes), "") << "REPLAYSSM_FUZZ_SEED=" << seed;
  }
}

}  // namespace
}  // namespace replayssm::tests
