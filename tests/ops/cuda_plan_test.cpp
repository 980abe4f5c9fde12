// Plans of the CUDA operations are pure functions of geometry: checked without a GPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/cuda/conv_args.h"
#include "ops/cuda/step_plan.h"

namespace replayssm::cuda {
namespace {

const DeviceLimits kH200{132, 232448, 233472, 1024};

StepGeometry geometry(GateKind gate, DType state, int entries) {
  StepGeometry g;
  g.heads = gate == GateKind::gdn ? HeadShape{gate, 16, 48} : HeadShape{gate, 32, 32};
  g.state = state;
  g.entries = entries;
  return g;
}

TEST(CudaPlan, EveryGroupHasAStageAndAllFitInSharedMemory) {
  for (const GateKind gate : {GateKind::gdn, GateKind::kda}) {
    for (const DType state : {DType::f32, DType::bf16}) {
      for (const int block : {1, 8, 16, 32}) {
        for (const int entries : {1, 2, 3, 16, 512}) {
          StepGeometry g = geometry(gate, state, entries);
          g.fold_block = block;
          g.ring_rows = 2 * block;
          for (const auto& plan : {plan_window_step(g, kH200), plan_packed_step(g, kH200)}) {
            ASSERT_TRUE(plan.ok()) << plan.error().message;
            EXPECT_GE(plan->stages, plan->groups);
            EXPECT_LE(plan->shared_bytes, kH200.shared_bytes_per_block);
            // One block a multiprocessor, or two that fit beside each other.
            const bool paired = plan->blocks > kH200.multiprocessors;
            EXPECT_LE(plan->blocks, 2 * kH200.multiprocessors);
            if (paired) {
              EXPECT_LE(2 * (plan->shared_bytes + kH200.shared_bytes_reserved),
                        kH200.shared_bytes_per_multiprocessor);
              EXPECT_EQ(plan->groups, 1);
            }
            EXPECT_EQ(plan->threads, 128 * plan->groups + 32);
          }
        }
      }
    }
  }
}

TEST(CudaPlan, APackedStepThatLeavesHalfOfTheMultiprocessorsIdleIsCutFiner) {
  EXPECT_EQ(plan_packed_step(geometry(GateKind::gdn, DType::bf16, 1), kH200)->unit_rows, 64);
  EXPECT_EQ(plan_packed_step(geometry(GateKind::gdn, DType::bf16, 2), kH200)->unit_rows, 128);
  EXPECT_EQ(plan_packed_step(geometry(GateKind::gdn, DType::f32, 1), kH200)->unit_rows, 64);
  EXPECT_EQ(plan_window_step(geometry(GateKind::gdn, DType::bf16, 1), kH200)->unit_rows, 128);
}

TEST(CudaPlan, ASmallBatchLeavesRoomForBlocksOfTheNextLaunch) {
  for (const GateKind gate : {GateKind::gdn, GateKind::kda}) {
    for (const DType state : {DType::f32, DType::bf16}) {
      for (const auto& plan : {plan_window_step(geometry(gate, state, 1), kH200),
                               plan_packed_step(geometry(gate, state, 1), kH200)}) {
        EXPECT_LE(2 * plan->shared_bytes, kH200.shared_bytes_per_block);
      }
      // A large one is two blocks of two stages, or one of more.
      const auto large = plan_window_step(geometry(gate, state, 64), kH200);
      EXPECT_GE(large->stages * large->blocks, 4 * kH200.multiprocessors);
    }
  }
}

TEST(CudaPlan, RefusalsNameTheFieldTheValueAndWhatIsAccepted) {
  StepGeometry g = geometry(GateKind::gdn, DType::f32, 4);
  g.ring_rows = 16;  // a sibling block could still read the row that a key is appended to
  EXPECT_EQ(plan_window_step(g, kH200).error().message,
            "ring_rows: 16 is not accepted; expected a power of two, at least 17");
  g = geometry(GateKind::gdn, DType::f32, 4);
  g.fold_block = 12;
  EXPECT_EQ(plan_window_step(g, kH200).error().message,
            "fold_block: 12 is not accepted; expected 8, 16 or 32 (1 for tests)");
  g = geometry(GateKind::gdn, DType::f16, 4);
  EXPECT_EQ(plan_packed_step(g, kH200).error().message,
            "state type: float16 is not accepted; expected float32 or bfloat16");
  g = geometry(GateKind::gdn, DType::f32, 0);
  EXPECT_FALSE(plan_window_step(g, kH200).ok());
  g = geometry(GateKind::gdn, DType::f32, 4);
  g.heads = {GateKind::gdn, 1, 16};
  EXPECT_EQ(plan_window_step(g, kH200).error().message,
            "value_heads / key_heads: 16 is not accepted; expected 1 to 8");
  g = geometry(GateKind::gdn, DType::f32, 400);
  EXPECT_EQ(plan_window_step(g, kH200, {.groups = 2, .stages = 1}).error().message,
            "stages: 1 is not accepted; expected 2 (one a group) to 4");
}

TEST(CudaPlan, EveryWindowHasAPlanThatFitsInSharedMemory) {
  for (const GateKind gate : {GateKind::gdn, GateKind::kda}) {
    for (const DType state : {DType::f32, DType::bf16}) {
      for (const int block : {8, 16, 32}) {
        for (int window = 2; window <= std::min(block, 16); ++window) {
          for (const int entries : {1, 3, 64, 512}) {
            StepGeometry g = geometry(gate, state, entries);
            g.fold_block = block;
            g.ring_rows = 64;
            g.window_max = window;
            const auto plan = plan_window_step(g, kH200);
            ASSERT_TRUE(plan.ok()) << plan.error().message;
            EXPECT_GE(plan->window, window);
            EXPECT_GE(plan->stages, plan->groups);
            EXPECT_LE(plan->shared_bytes, kH200.shared_bytes_per_block);
          }
        }
      }
    }
  }
}

TEST(CudaPlan, AWindowsBlockHasAsManyGroupsAsItsMultiprocessorHolds) {
  const auto plan_of = [](GateKind gate, DType state, int window) {
    StepGeometry g = geometry(gate, state, 128);
    g.ring_rows = 64;
    g.window_max = window;
    return *plan_window_step(g, kH200);
  };
  // Four warps a group and four producers; with bf16 states of KDA eight warps a group.
  EXPECT_EQ(plan_of(GateKind::gdn, DType::bf16, 8).groups, 3);
  EXPECT_EQ(plan_of(GateKind::gdn, DType::bf16, 8).stages, 5);
  EXPECT_EQ(plan_of(GateKind::gdn, DType::bf16, 16).groups, 3);
  EXPECT_EQ(plan_of(GateKind::gdn, DType::bf16, 16).stages, 3);
  EXPECT_EQ(plan_of(GateKind::gdn, DType::bf16, 8).threads, 32 * (3 * 4 + 4));
  EXPECT_EQ(plan_of(GateKind::kda, DType::bf16, 4).groups, 2);
  EXPECT_EQ(plan_of(GateKind::kda, DType::bf16, 4).threads, 32 * (2 * 8 + 4));
  EXPECT_EQ(plan_of(GateKind::gdn, DType::f32, 16).groups, 3);
  EXPECT_EQ(plan_of(GateKind::gdn, DType::f32, 16).unit_rows, 128);
  // Where stages are too large for three groups there are two, not one.
  EXPECT_EQ(plan_of(GateKind::kda, DType::f32, 8).groups, 2);
}

TEST(CudaPlan, AWindowNeedsARingThatSiblingsMayReadWhileItIsAppended) {
  StepGeometry g = geometry(GateKind::gdn, DType::bf16, 4);
  g.window_max = 8;
  g.ring_rows = 32;  // L + 2 T - 1 = 31
  EXPECT_TRUE(plan_window_step(g, kH200).ok());
  g.window_max = 9;
  EXPECT_EQ(plan_window_step(g, kH200).error().message,
            "ring_rows: 32 is not accepted; expected a power of two, at least 33");
  g.window_max = 17;
  EXPECT_EQ(plan_window_step(g, kH200).error().message,
            "window_max: 17 is not accepted; expected 1 to 16");
}

TEST(CudaPlan, AFoldHoldsAsManyRecordsAsAnyEntryFolds) {
  const HeadShape heads{GateKind::kda, 32, 32};
  EXPECT_EQ(plan_fold({heads, DType::bf16, 64, 16, 8, 48}, kH200)->record_tile, 16);
  EXPECT_EQ(plan_fold({heads, DType::bf16, 64, 17, 8, 48}, kH200)->record_tile, 32);
  EXPECT_EQ(plan_fold({heads, DType::f32, 64, 47, 8, 48}, kH200)->record_tile, 64);
  EXPECT_FALSE(plan_fold({heads, DType::bf16, 128, 65, 8, 48}, kH200).ok());
}

TEST(CudaPlan, AChunkHasABlockOfTheGridForEachUnit) {
  for (const GateKind gate : {GateKind::gdn, GateKind::kda}) {
    for (const DType state : {DType::f32, DType::bf16}) {
      for (const int block : {1, 8, 16, 32}) {
        for (const int entries : {1, 2, 16}) {
          StepGeometry g = geometry(gate, state, entries);
          g.fold_block = block;
          const auto plan = plan_chunk_prefill(g, kH200);
          ASSERT_TRUE(plan.ok()) << plan.error().message;
          EXPECT_EQ(plan->blocks * plan->unit_rows, entries * g.heads.value_heads * kValueDim);
          EXPECT_FALSE(plan->overlap);
          // Two find room in a multiprocessor but for L = 32, KDA in tiles and, where there are
          // registers for one only, GDN with fp32 states.
          const bool alone = gate == GateKind::gdn ? state == DType::f32 : state == DType::bf16;
          if (block <= 16 && !alone) {
            EXPECT_LE(2 * (plan->shared_bytes + kH200.shared_bytes_reserved),
                      kH200.shared_bytes_per_multiprocessor)
                << entries << " " << block;
          }
          EXPECT_LE(plan->shared_bytes, kH200.shared_bytes_per_block);
        }
      }
    }
  }
  // Halves where there are multiprocessors for them, and where they exist.
  EXPECT_EQ(plan_chunk_prefill(geometry(GateKind::gdn, DType::bf16, 1), kH200)->unit_rows, 64);
  EXPECT_EQ(plan_chunk_prefill(geometry(GateKind::gdn, DType::bf16, 2), kH200)->unit_rows, 128);
  EXPECT_EQ(plan_chunk_prefill(geometry(GateKind::gdn, DType::f32, 1), kH200)->unit_rows, 64);
}

TEST(CudaPlan, AChunkNeedsARingForWhatIsPendingOnly) {
  StepGeometry g = geometry(GateKind::gdn, DType::bf16, 4);
  g.ring_rows = 16;
  EXPECT_TRUE(plan_chunk_prefill(g, kH200).ok());
  g.window_max = 2;
  EXPECT_EQ(plan_chunk_prefill(g, kH200).error().message,
            "ring_rows: 16 is not accepted; expected a power of two, at least 17");
  g.ring_rows = 32;
  g.fold_block = 64;
  EXPECT_EQ(plan_chunk_prefill(g, kH200).error().message,
            "fold_block: 64 is not accepted; expected 8, 16 or 32 (1 for tests)");
  EXPECT_EQ(plan_chunk_prefill(geometry(GateKind::gdn, DType::f32, 4), kH200, {.unit_rows = 32})
                .error()
                .message,
            "unit_rows: 32 is not accepted; expected 64");
}

TEST(CudaPlan, AConvolutionsTasksCoverEveryTokenOfARowOnce) {
  const std::vector<RowTokens> rows = {{RowIndex{4}, 0, 16, Phase::verify},
                                       {RowIndex{2}, 16, 2 * kConvTaskTokens + 1, Phase::prefill},
                                       {RowIndex{9}, 81, kConvTaskTokens, Phase::prefill}};
  const std::vector<ConvTask> tasks = conv_tasks(rows);
  ASSERT_EQ(tasks.size(), 5u);
  std::size_t task = 0;
  for (const RowTokens& row : rows) {
    for (int offset = 0; offset < row.tokens; offset += kConvTaskTokens, ++task) {
      EXPECT_EQ(tasks[task].row, row.row.value);
      EXPECT_EQ(tasks[task].first_token, row.first_token);
      EXPECT_EQ(tasks[task].tokens, row.tokens);
      EXPECT_EQ(tasks[task].offset, offset);
    }
  }
}

TEST(CudaPlan, AConvolutionThatDoesNotFitIsRefused) {
  alignas(16) bf16 x[64];
  alignas(16) float weight[64];
  ConvArgs args;
  args.rings = {x, DType::bf16, 1, 4, 16};
  args.tails = {x, DType::bf16, 48, 1, 16};
  args.input_bf16 = x;
  args.out_bf16 = x + 32;
  args.weight = weight;
  EXPECT_TRUE(conv_fits(args).ok());
  args.out_bf16 = x;
  EXPECT_EQ(conv_fits(args).error().message,
            "out_bf16: the input's memory is not accepted; expected memory apart from input_bf16");
  args.out_bf16 = x + 32;
  args.rings.channels = 14;
  EXPECT_EQ(conv_fits(args).error().message,
            "rings.channels: 14 is not accepted; expected a multiple of 4");
  args.rings.channels = 16;
  args.rings.type = DType::f32;
  EXPECT_EQ(conv_fits(args).error().message,
            "rings.type: float32 is not accepted; expected bfloat16");
}

}  // namespace
}  // namespace replayssm::cuda
