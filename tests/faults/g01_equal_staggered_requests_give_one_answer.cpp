// Fault G01 (Neroued/ninfer#80): eight equal greedy requests get two or three answers, because the
// kernel is chosen by the number of tokens in a step. Exact here with --deterministic, whatever
// joins when.
#include <gtest/gtest.h>

#include "small_engine.h"

namespace replayssm {
namespace {

TEST(G01, EightEqualRequestsStaggeredByAStepGiveOneAnswer) {
  for (const char* model : kModelKinds) {
    EngineOptions options = small_options();
    options.model_path = small_checkpoint(model);
    options.max_running_requests = 8;
    EXPECT_EQ(answers(options, 8, 1).size(), 1u) << model;
    options.activations = DType::bf16;
    EXPECT_EQ(answers(options, 8, 1).size(), 1u) << model;
    options.threads = 2;
    EXPECT_EQ(answers(options, 8, 1).size(), 1u) << model;
  }
}

}  // namespace
}  // namespace replayssm
