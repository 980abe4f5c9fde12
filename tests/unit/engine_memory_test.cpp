// What is planned is what is allocated.
#include <gtest/gtest.h>

#include "engine/memory_needs.h"
#include "small_engine.h"

namespace replayssm {
namespace {

std::int64_t line(const MemoryPlan& plan, std::string_view name) {
  for (const MemoryLine& each : plan.lines) {
    if (each.name == name) return each.bytes;
  }
  ADD_FAILURE() << "no line " << name;
  return -1;
}

TEST(EngineMemory, PoolsHaveExactlyThePlannedBytes) {
  for (const Recurrence recurrence : {Recurrence::replay, Recurrence::packed}) {
    for (const DType activations : {DType::f32, DType::bf16}) {
      EngineOptions options = small_options();
      options.recurrence = recurrence;
      options.activations = activations;
      options.window_max = recurrence == Recurrence::replay ? 4 : 1;
      options.slots_beyond_requests = 3;
      options.kept_sequences_least = 6;
      const auto engine = make_engine(options);
      ASSERT_TRUE(engine);
      SequenceMemory& memory = engine->memory();
      EXPECT_EQ(memory.slots().bytes(), line(engine->plan(), "state slots"));
      EXPECT_EQ(memory.rows().ring_bytes(), line(engine->plan(), "record rings"));
      EXPECT_EQ(memory.rows().conv_ring_bytes() + memory.rows().cursor_bytes(),
                line(engine->plan(), "conv rings"));
      EXPECT_EQ(memory.pages().bytes(), line(engine->plan(), "KV pages"));
      EXPECT_EQ(memory.slots().slots(), 4 + 3 + 2 * 6);
      EXPECT_EQ(memory.rows().rows(), 4 + 6);
      EXPECT_EQ(engine->plan().used, [&] {
        std::int64_t sum = 0;
        for (const MemoryLine& each : engine->plan().lines) sum += each.bytes;
        return sum;
      }());
      EXPECT_EQ(memory.rows().ring_bytes() == 0, recurrence == Recurrence::packed);
      EXPECT_EQ(memory.views().rings.empty(), recurrence == Recurrence::packed);
    }
  }
}

TEST(EngineMemory, WeightsAndWorkspaceArePlannedFromTheConfigurationAlone) {
  for (const char* name :
       {"ratio1_float32_flat_tied", "ratio2_float16_nested_untied", "next_ratio3_float32_tied",
        "float8_ratio2_bfloat16_untied", "kimi_bfloat16_untied", "kda_hybrid_bfloat16_tied"}) {
    EngineOptions options = small_options();
    options.model_path = small_checkpoint(name);
    const auto engine = make_engine(options);
    ASSERT_TRUE(engine);
    EXPECT_EQ(line(engine->plan(), "workspace"),
              device_workspace_bytes(DeviceKind::cpu, engine->config(), engine->model_options(),
                                     model_sizes(options), engine->threads()) +
                  logits_bytes(engine->config(), options.logit_rows));
    // Norms may be stored in 16 bits and are counted in 32, so the plan may be a little above.
    const std::int64_t planned = planned_weight_bytes(engine->config(), false);
    const std::int64_t loaded = line(engine->plan(), "weights");
    EXPECT_GE(planned, loaded) << name;
    EXPECT_LE(static_cast<double>(planned), 1.05 * static_cast<double>(loaded)) << name;
  }
}

// The numbers of a step that a GPU's kernels read name every page of every row: the longer the
// context, the more of them.
TEST(EngineMemory, OnAGpuTheTablesOfAStepArePlannedForTheLongestContext) {
  const auto config = load_config(small_checkpoint());
  ASSERT_TRUE(config.ok());
  EngineOptions options = small_options();
  options.device = DeviceKind::cuda;
  const auto workspace = [&](int context_length, bool draft_head) {
    options.context_length = context_length;
    ModelOptions model_options;
    model_options.draft_head = draft_head;
    model_options.max_step_tokens = options.step_tokens;
    return device_workspace_bytes(DeviceKind::cuda, *config, model_options, model_sizes(options),
                                  1);
  };
  const int rows = model_sizes(options).rows;
  for (const bool draft_head : {false, true}) {
    EXPECT_EQ(workspace(4096, draft_head) - workspace(256, draft_head),
              std::int64_t{rows} * (4096 - 256) / 16 * 4 * (draft_head ? 2 : 1));
  }
  EXPECT_EQ(workspace(0, false), workspace(config->max_positions, false));
}

TEST(EngineMemory, ABudgetOneByteTooSmallIsRefusedWithTheNumbers) {
  EngineOptions options = small_options();
  const auto engine = make_engine(options);
  const std::int64_t rows = engine->plan().rows;
  // The smallest plan has pages for one context only.
  const std::int64_t page = engine->memory().layout().page_bytes();
  const std::int64_t context_pages = engine->memory().layout().pages_for(256);
  options.memory_budget = engine->plan().used - (engine->plan().pages - context_pages) * page;
  ASSERT_EQ(make_engine(options)->plan().rows, rows);
  EXPECT_EQ(make_engine(options)->plan().used, options.memory_budget);
  options.memory_budget -= 1;
  const auto refused = Engine::create(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("is not enough; at least"), std::string::npos);
  EXPECT_NE(refused.error().message.find("4 running requests"), std::string::npos);
}

// It is made with the model, before there is a plan.
TEST(EngineMemory, AWorkspaceThatNoMemoryHoldsIsRefusedBeforeItIsMade) {
  EngineOptions options = small_options();
  options.step_tokens = 1 << 26;
  const auto refused = Engine::create(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("is not enough; the workspace of steps of 67108864 tokens "
                                         "(--chunked-prefill-size) takes"),
            std::string::npos)
      << refused.error().message;
}

TEST(EngineMemory, WithoutAContextLengthTheLongestThatFitsIsTaken) {
  MemoryNeeds needs;
  needs.weights = 1000;
  needs.kv_per_token = 10;
  needs.page_tokens = 16;
  needs.max_running_requests = 1;
  needs.budget = 1000 + 10 * 100000;
  EXPECT_EQ(plan_sequences(needs, 8192)->context_length, 8192);
  EXPECT_EQ(plan_sequences(needs, 262144)->context_length, 97 * 1024);
  needs.budget = 1000 + 10 * 2047;
  EXPECT_FALSE(plan_sequences(needs, 262144).ok());
  EXPECT_EQ(plan_sequences(needs, 1000)->context_length, 1000);
  needs.context_length = 2000;
  EXPECT_EQ(plan_sequences(needs, 262144)->context_length, 2000);
  EXPECT_FALSE(plan_sequences(needs, 1000).ok()) << "beyond the model's context";
}

TEST(EngineOptions, ValuesThatDoNotFitAreRefusedByFlag) {
  const auto refused = [](auto change) {
    EngineOptions options = small_options();
    change(options);
    const auto engine = Engine::create(options);
    return engine.ok() ? std::string("accepted")
                       : engine.error().message.substr(0, engine.error().message.find(':'));
  };
  EXPECT_EQ(refused([](auto& o) { o.state_type = DType::f16; }), "--mamba-ssm-dtype");
  EXPECT_EQ(refused([](auto& o) { o.activations = DType::f16; }), "--dtype");
  EXPECT_EQ(refused([](auto& o) { o.fold_block = 24; }), "--linear-replayssm-cache-len");
  EXPECT_EQ(refused([](auto& o) { o.window_max = 17; }), "--speculative-num-draft-tokens");
  EXPECT_EQ(refused([](auto& o) { o.max_running_requests = 65; }), "--max-running-requests");
  EXPECT_EQ(refused([](auto& o) { o.context_length = 1 << 30; }), "--context-length");
}

}  // namespace
}  // namespace replayssm
