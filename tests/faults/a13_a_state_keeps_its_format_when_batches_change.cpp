// Fault A13 (gittensor-ai-lab/sparkinfer#1123): a state was compacted in place when its request
// joined a batch, and one caller went on reading it in the old format. A request that is alone,
// joins a batch and is alone again leaves the memory of one that was alone all the time.
#include <gtest/gtest.h>

#include "cache/sequence_image.h"
#include "small_engine.h"

namespace replayssm {
namespace {

void run(Engine& engine, std::initializer_list<Sequence*> sequences, int steps) {
  for (int i = 0; i < steps; ++i) {
    std::vector<StepRow> rows;
    for (Sequence* sequence : sequences) {
      rows.push_back(Engine::next_row(*sequence, 16));
      ASSERT_TRUE(engine.prepare(rows.back()).ok());
    }
    ASSERT_TRUE(engine.step(rows).ok());
  }
}

std::vector<std::byte> memory_of(Engine& engine, const Sequence& sequence) {
  ByteWriter out;
  EXPECT_TRUE(write_image(engine.memory(), sequence.memory, engine.ops(), out).ok());
  return std::move(out).take();
}

TEST(A13, AloneInABatchAndAloneAgainLeavesTheMemoryOfASoloRun) {
  for (const Recurrence recurrence : {Recurrence::replay, Recurrence::packed}) {
    EngineOptions options = small_options();
    options.recurrence = recurrence;
    const auto engine = make_engine(options);
    const auto prompt = random_prompt(*engine, 20, 1);
    Sequence solo = engine->admit(prompt, greedy()).value();
    run(*engine, {&solo}, 32);
    const auto expected = memory_of(*engine, solo);
    const auto tokens = solo.tokens;
    solo = Sequence{};

    Sequence changing = engine->admit(prompt, greedy()).value();
    run(*engine, {&changing}, 10);
    {
      Sequence a = engine->admit(random_prompt(*engine, 7, 2), greedy()).value();
      Sequence b = engine->admit(random_prompt(*engine, 41, 3), greedy()).value();
      run(*engine, {&b, &changing, &a}, 12);
    }
    run(*engine, {&changing}, 10);
    EXPECT_EQ(changing.tokens, tokens);
    EXPECT_EQ(memory_of(*engine, changing), expected);
  }
}

}  // namespace
}  // namespace replayssm
