// InternLM/lmdeploy#4436: on a processor that was not supported the server began, and failed in the
// first step. Whatever this machine or build cannot do is refused by name before it listens.
#include <set>
#include <string>

#include "ops/cpu_isa.h"
#include "program.h"
#include "test_checkpoint.h"

namespace replayssm {
namespace {

ProgramResult serve(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"serve", "--port", "0"});
  return run_program(flags);
}

TEST(H07, AnInstructionSetThatTheMachineLacksIsRefusedByNameAtStart) {
  const auto here = cpu_isas();
  const std::set<std::string> known(here.begin(), here.end());
  int refused = 0;
  for (const char* isa : {"avx512", "avx2", "sse4", "neon", "mmx"}) {
    if (known.count(isa) > 0) continue;
    const ProgramResult result = serve({"--cpu-isa", isa});
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_EQ(result.out, "") << "it does not listen";
    EXPECT_NE(result.err.find("--cpu-isa"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(isa), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(here.front()), std::string::npos) << "what is there: " << result.err;
    ++refused;
  }
  EXPECT_GT(refused, 0);
}

TEST(H07, AModelFamilyThatIsNotBuiltIsRefusedByNameAtStart) {
  TestCheckpoint checkpoint("ratio3_bfloat16_flat_untied");
  checkpoint.edit_config([](nlohmann::json& config) { config["model_type"] = "mamba7"; });
  const ProgramResult result = serve({"--model-path", checkpoint.path().string()});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("model_type"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("mamba7"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace replayssm
