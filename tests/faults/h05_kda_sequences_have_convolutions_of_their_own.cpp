// Fault H05 (vllm-project/vllm#28436): the conv states of Kimi-Linear's q, k and v were found by
// wrong indices as soon as there was more than one sequence. Here the three share one ring of
// inputs; what matters is that neither batch mates nor earlier owners of a row or slot reach it.
#include <gtest/gtest.h>

#include "small_engine.h"

namespace replayssm {
namespace {

class H05 : public testing::TestWithParam<const char*> {
 protected:
  EngineOptions options() const {
    EngineOptions options = small_options();
    options.model_path = small_checkpoint(GetParam());
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Models, H05,
                         testing::Values("kda_hybrid_bfloat16_tied", "kimi_bfloat16_untied"),
                         [](const auto& test) { return std::string(test.param); });

// Prompts shorter than the convolution reaches, and one that ends where a block does.
TEST_P(H05, TwoSequencesAreEachAsIfAlone) {
  for (const Recurrence recurrence : {Recurrence::replay, Recurrence::packed}) {
    EngineOptions two = options();
    two.recurrence = recurrence;
    two.max_running_requests = 2;
    const auto engine = make_engine(two);
    Scheduler scheduler(*engine);
    std::vector<std::vector<TokenId>> prompts;
    for (const int tokens : {1, 30, 2, 16}) {  // the last two get the rows of the first two
      prompts.push_back(random_prompt(*engine, tokens, static_cast<unsigned>(tokens)));
      ASSERT_TRUE(scheduler.submit({prompts.back(), greedy(), 24, true}).ok());
    }
    const auto finished = run_all(scheduler);
    ASSERT_EQ(finished.size(), prompts.size());
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(finished[i].output, solo(two, prompts[i], 24)) << prompts[i].size();
    }
    expect_all_free(*engine);
  }
}

// A step in which one decodes, one is in its prompt, and their rows are the other way round.
TEST_P(H05, TheOrderOfRowsInABatchDoesNotMatter) {
  const auto engine = make_engine(options());
  const auto tokens = [&](unsigned seed) { return random_prompt(*engine, 60, seed); };
  const auto logits_of = [&](bool reversed) {
    Sequence first = engine->admit(tokens(1), greedy()).value();
    Sequence second = engine->admit(tokens(2), greedy()).value();
    std::vector<float> of_first;
    for (int step = 0; step < 12; ++step) {
      std::vector<StepRow> rows{{&first, 1, Phase::decode, 1}, {&second, 5, Phase::prefill, 1}};
      if (reversed) std::swap(rows[0], rows[1]);
      for (const StepRow& row : rows) EXPECT_TRUE(engine->prepare(row).ok());
      const auto logits = engine->runner().evaluate(rows);
      EXPECT_TRUE(logits.ok());
      const auto row = engine->runner().logits_row(*logits, reversed ? 1 : 0);
      of_first.insert(of_first.end(), row.begin(), row.end());
      EXPECT_TRUE(engine->runner().commit().ok());
    }
    return of_first;
  };
  EXPECT_EQ(logits_of(false), logits_of(true));
}

}  // namespace
}  // namespace replayssm
