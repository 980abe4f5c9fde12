// Replay off allocates no ring, and what it computes is the packed step over the tokens one by one,
// byte for byte, however the engine cuts them into chunks and whoever is in the batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "engine/memory_needs.h"
#include "engine/runner.h"
#include "small_engine.h"

namespace replayssm {
namespace {

// Passes everything on to a backend. Beside each packed step it keeps a state of its own for every
// row and layer, which it moves by packed steps of a single token each, and compares both outputs.
// Operations of replay are faults.
class OneTokenShadow final : public LinearOps {
 public:
  explicit OneTokenShadow(LinearOps& ops) : ops_(ops) {}

  std::string_view name() const override { return ops_.name(); }
  GateForm gate_form() const override { return ops_.gate_form(); }
  Status gates(const GateArgs& args) override { return ops_.gates(args); }
  Status conv_window(const ConvArgs& args) override { return ops_.conv_window(args); }
  Status conv_chunk(const ConvArgs& args) override { return ops_.conv_chunk(args); }
  Status advance(const AdvanceArgs& args) override { return ops_.advance(args); }
  Status export_state(const HeadShape& shape, const StateView& states, SlotId slot,
                      std::span<float> out) const override {
    return ops_.export_state(shape, states, slot, out);
  }
  Status import_state(const HeadShape& shape, const StateView& states, SlotId slot,
                      std::span<const float> in) const override {
    return ops_.import_state(shape, states, slot, in);
  }
  Status window_step(const StepArgs&) override { return Error{"window_step with replay off"}; }
  Status chunk_prefill(const StepArgs&) override { return Error{"chunk_prefill with replay off"}; }
  Status fold(const FoldArgs&) override { return Error{"fold with replay off"}; }

  Status packed_step(const StepArgs& args) override {
    const HeadShape& shape = args.shape;
    const std::size_t outputs = static_cast<std::size_t>(shape.value_heads) * kValueDim;
    std::vector<std::vector<float>> expected;  // one a row of the step
    for (const RowTokens& row : args.rows) {
      auto& state = states_[{args.states.data, row.row}];
      state.resize(shape.state_elements());
      auto& out = expected.emplace_back();
      for (int i = 0; i < row.tokens; ++i) {
        REPLAYSSM_TRY(one_token(args, row, i, state, out));
      }
      ++rows_seen;
      tokens_seen += row.tokens;
    }
    REPLAYSSM_TRY(ops_.packed_step(args));
    for (std::size_t r = 0; r < args.rows.size(); ++r) {
      const RowTokens& row = args.rows[r];
      const float* out = args.out + static_cast<std::size_t>(row.first_token) * outputs;
      outputs_differ += std::memcmp(out, expected[r].data(), expected[r].size() * 4) != 0 ? 1 : 0;
      std::vector<float> state(shape.state_elements());
      const SlotId home = args.cursors.home[static_cast<std::size_t>(row.row.value)];
      REPLAYSSM_TRY(ops_.export_state(shape, args.states, home, state));
      states_differ += state != states_[{args.states.data, row.row}] ? 1 : 0;
    }
    return {};
  }

  int rows_seen = 0;
  int tokens_seen = 0;
  int outputs_differ = 0;
  int states_differ = 0;

 private:
  // Token i of the row as a packed step of its own, alone in a pool of one slot.
  Status one_token(const StepArgs& args, const RowTokens& row, int i, std::vector<float>& state,
                   std::vector<float>& out) {
    const HeadShape& shape = args.shape;
    const std::size_t token = static_cast<std::size_t>(row.first_token + i);
    const std::size_t heads = static_cast<std::size_t>(shape.value_heads);
    AlignedBuffer<float> slot(shape.state_elements());
    Depth committed = args.cursors.committed[static_cast<std::size_t>(row.row.value)] + i;
    Depth checkpoint = committed;
    SlotId base{0};
    SlotId home{0};
    const RowTokens one{RowIndex{0}, 0, 1, row.phase};
    StepArgs alone = args;
    alone.states = {slot.data(), DType::f32, shape.state_elements(), 1};
    alone.cursors = {&committed, &checkpoint, &base, &home, 1};
    alone.rows = {&one, 1};
    alone.qkv = args.qkv + token * static_cast<std::size_t>(shape.channels());
    alone.gate = args.gate + token * heads * static_cast<std::size_t>(shape.gate_width());
    alone.beta = args.beta + token * heads;
    std::vector<float> result(heads * kValueDim);
    alone.out = result.data();
    REPLAYSSM_TRY(ops_.import_state(shape, alone.states, base, state));
    REPLAYSSM_TRY(ops_.packed_step(alone));
    REPLAYSSM_TRY(ops_.export_state(shape, alone.states, home, state));
    out.insert(out.end(), result.begin(), result.end());
    return {};
  }

  LinearOps& ops_;
  std::map<std::pair<void*, RowIndex>, std::vector<float>> states_;
};

class ReplayOff : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Models, ReplayOff,
                         testing::Values("ratio3_bfloat16_flat_untied", "kda_hybrid_bfloat16_tied"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(ReplayOff, IsThePackedStepTokenByTokenByteForByteAndHasNoRing) {
  ThreadPool pool(2);
  const auto cpu = make_cpu_ops(pool);
  OneTokenShadow ops(*cpu);
  ModelOptions options;
  options.recurrence = Recurrence::packed;
  options.max_step_tokens = 64;
  const auto directory = small_checkpoint(GetParam());
  auto model = Model::load(directory, options, pool, ops);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const SequenceLayout layout = sequence_layout((*model)->config(), options, DType::f32, 16);
  SequenceMemory memory(layout, {3, 3, 30}, Poison::on);
  EXPECT_EQ(memory.rows().ring_bytes(), 0);
  EXPECT_TRUE(memory.views().rings.empty());
  Runner runner(**model, ops, memory, {64, 3});

  std::vector<Sequence> sequences(3);
  for (std::size_t n = 0; n < 3; ++n) {
    sequences[n].memory = memory.admit().value();
    for (int i = 0; i < 90; ++i) {
      sequences[n].tokens.push_back(
          static_cast<TokenId>((i * 37 + static_cast<int>(n) * 11) % 500));
    }
  }
  // Chunks of several sizes beside single tokens, in one batch.
  const int chunks[] = {17, 5, 1};
  for (int step = 0; step < 5; ++step) {
    std::vector<StepRow> rows;
    for (std::size_t n = 0; n < 3; ++n) {
      const int tokens = chunks[(n + static_cast<std::size_t>(step)) % 3];
      rows.push_back({&sequences[n], tokens, tokens > 1 ? Phase::prefill : Phase::decode, 1});
      ASSERT_TRUE(memory.prepare(sequences[n].memory, tokens, rows.back().phase).ok());
    }
    const auto logits = runner.evaluate(rows);
    ASSERT_TRUE(logits.ok()) << logits.error().message;
    ASSERT_TRUE(runner.commit().ok());
  }
  EXPECT_EQ(ops.rows_seen, 5 * 3 * layout.linear_layers);
  EXPECT_GT(ops.tokens_seen, 100);
  EXPECT_EQ(ops.outputs_differ, 0);
  EXPECT_EQ(ops.states_differ, 0);
}

}  // namespace
}  // namespace replayssm
