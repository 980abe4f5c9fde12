// vllm-project/vllm#36242, ROCm/aiter#3251: rows of fused b/a or qkvz projections were split in the
// order of the other family, and the model went on, much worse. qwen3_next fuses per key head;
// qwen3_5 stores plain separate matrices. Here the family decides, the same weights in either
// layout give the same bits, each family refuses the other's tensors by name, and a wrong order
// cannot pass the golden files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "e2e/parity_golden.h"
#include "e2e/parity_sequence.h"
#include "model/weights.h"
#include "test_checkpoint.h"

namespace replayssm {
namespace {

using testing::HasSubstr;

constexpr const char* kCheckpoint = "ratio3_bfloat16_flat_untied";
constexpr const char* kFused = "next_ratio2_bfloat16_untied";
constexpr std::size_t kKeyHeads = 2;  // of both
constexpr std::size_t kGroup = 3;
constexpr std::size_t kFusedGroup = 2;
constexpr std::size_t kDim = 128;
constexpr double kFar = 1e-2;

std::string refusal(const TestCheckpoint& checkpoint) {
  const auto config = load_config(checkpoint.path());
  if (!config) return config.error().message;
  const auto weights = load_weights(checkpoint.path(), *config);
  return weights ? "" : weights.error().message;
}

std::vector<float> logits_of(const TestCheckpoint& checkpoint) {
  ModelOptions options;
  options.max_step_tokens = 128;
  ParitySequence sequence(checkpoint.path(), options);
  return sequence.prefill(Golden(kCheckpoint).ids("prompt.1.ids"));
}

double distance_from_golden(const TestCheckpoint& checkpoint, const char* name = kCheckpoint) {
  const Golden golden(name);
  ModelOptions options;
  options.max_step_tokens = 128;
  ParitySequence sequence(checkpoint.path(), options);
  const auto logits = sequence.prefill(golden.ids("prompt.1.ids"));
  return largest_difference(
      logits, columns_of(golden.floats("float32.prompt.1.logits"), sequence.config().vocab_rows,
                         sequence.config().vocab_size));
}

std::string layer(int n, const std::string& tensor) {
  return "model.layers." + std::to_string(n) + ".linear_attn." + tensor;
}

TEST(H04, fused_projections_are_refused_by_name_in_a_family_that_has_none) {
  const TestCheckpoint both(kCheckpoint);
  both.edit_tensors([](EditableTensors& tensors) {
    tensors[layer(0, "in_proj_ba.weight")] = {
        "BF16", {12, 64}, std::vector<std::byte>(12 * 64 * 2)};
  });
  EXPECT_THAT(refusal(both), HasSubstr(layer(0, "in_proj_ba.weight")));

  const TestCheckpoint fused(kCheckpoint);
  fused.edit_tensors([](EditableTensors& tensors) {
    auto& qkv = tensors.at(layer(0, "in_proj_qkv.weight"));
    const auto& z = tensors.at(layer(0, "in_proj_z.weight"));
    qkv.data.insert(qkv.data.end(), z.data.begin(), z.data.end());
    qkv.shape[0] += z.shape[0];
    tensors[layer(0, "in_proj_qkvz.weight")] = qkv;
    tensors.erase(layer(0, "in_proj_qkv.weight"));
    tensors.erase(layer(0, "in_proj_z.weight"));
  });
  EXPECT_THAT(refusal(fused), HasSubstr(layer(0, "in_proj_qkv.weight") + ": missing"));
}

// The rows of qwen3_5's tensors in the order of qwen3_next: for each key head q, k, its v, its z;
// and its b, its a.
void fuse_projections(EditableTensors& tensors, int n) {
  EditableTensor qkvz = tensors.at(layer(n, "in_proj_qkv.weight"));
  EditableTensor ba = tensors.at(layer(n, "in_proj_b.weight"));
  const auto append = [](EditableTensor& to, const EditableTensor& from) {
    to.data.insert(to.data.end(), from.data.begin(), from.data.end());
    to.shape[0] += from.shape[0];
  };
  append(qkvz, tensors.at(layer(n, "in_proj_z.weight")));
  append(ba, tensors.at(layer(n, "in_proj_a.weight")));
  constexpr std::size_t kValues = kKeyHeads * kGroup * kDim;
  std::vector<std::size_t> order;
  const auto take = [&order](std::size_t first, std::size_t rows) {
    for (std::size_t i = 0; i < rows; ++i) order.push_back(first + i);
  };
  for (std::size_t key = 0; key < kKeyHeads; ++key) {
    take(key * kDim, kDim);
    take((kKeyHeads + key) * kDim, kDim);
    take(2 * kKeyHeads * kDim + key * kGroup * kDim, kGroup * kDim);
    take(2 * kKeyHeads * kDim + kValues + key * kGroup * kDim, kGroup * kDim);
  }
  permute_rows(qkvz, order);
  order.clear();
  for (std::size_t key = 0; key < kKeyHeads; ++key) {
    take(key * kGroup, kGroup);
    take(kKeyHeads * kGroup + key * kGroup, kGroup);
  }
  permute_rows(ba, order);
  for (const char* name : {"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"}) {
    tensors.erase(layer(n, std::string(name) + ".weight"));
  }
  tensors[layer(n, "in_proj_qkvz.weight")] = qkvz;
  tensors[layer(n, "in_proj_ba.weight")] = ba;
}

void become_qwen3_next(const TestCheckpoint& checkpoint) {
  checkpoint.edit_config([](auto& c) {
    c["model_type"] = "qwen3_next";
    c["num_experts"] = 0;
  });
}

TEST(H04, the_same_weights_in_either_layout_give_the_same_bits) {
  const TestCheckpoint separate(kCheckpoint);
  const TestCheckpoint fused(kCheckpoint);
  become_qwen3_next(fused);
  fused.edit_tensors([](EditableTensors& tensors) {
    for (int n = 0; n < 3; ++n) fuse_projections(tensors, n);
  });
  EXPECT_EQ(logits_of(fused), logits_of(separate));
}

TEST(H04, separate_projections_are_refused_by_name_in_the_family_that_fuses_them) {
  const TestCheckpoint checkpoint(kCheckpoint);
  become_qwen3_next(checkpoint);
  EXPECT_THAT(refusal(checkpoint), HasSubstr(layer(0, "in_proj_qkvz.weight") + ": missing"));

  const TestCheckpoint both(kFused);
  both.edit_tensors([](EditableTensors& tensors) {
    tensors[layer(0, "in_proj_z.weight")] = {
        "BF16", {512, 64}, std::vector<std::byte>(512 * 64 * 2)};
  });
  EXPECT_THAT(refusal(both), HasSubstr(layer(0, "in_proj_z.weight")));
}

TEST(H04, fused_rows_of_another_head_count_are_refused_by_shape) {
  const TestCheckpoint checkpoint(kFused);
  checkpoint.edit_config([](auto& c) { c["linear_num_value_heads"] = 2; });
  EXPECT_THAT(refusal(checkpoint), HasSubstr(layer(0, "in_proj_qkvz.weight") +
                                             ": shape [1536, 64]; expected [1024, 64]"));
}

TEST(H04, fused_rows_without_interleaving_are_far_from_the_golden_logits) {
  const TestCheckpoint unchanged(kFused);
  EXPECT_LT(distance_from_golden(unchanged, kFused), 1e-5);

  // As if the file held all of q, then all of k, v and z; and all of b, then a.
  const TestCheckpoint qkvz(kFused);
  qkvz.edit_tensors([](EditableTensors& tensors) {
    constexpr std::size_t kBlock = 2 * kDim + 2 * kFusedGroup * kDim;
    std::vector<std::size_t> order;
    const auto take = [&order](std::size_t offset, std::size_t rows) {
      for (std::size_t key = 0; key < kKeyHeads; ++key) {
        for (std::size_t i = 0; i < rows; ++i) order.push_back(key * kBlock + offset + i);
      }
    };
    take(0, kDim);
    take(kDim, kDim);
    take(2 * kDim, kFusedGroup * kDim);
    take(2 * kDim + kFusedGroup * kDim, kFusedGroup * kDim);
    permute_rows(tensors.at(layer(0, "in_proj_qkvz.weight")), order);
  });
  EXPECT_GT(distance_from_golden(qkvz, kFused), kFar);

  const TestCheckpoint ba(kFused);
  ba.edit_tensors([](EditableTensors& tensors) {
    permute_rows(tensors.at(layer(0, "in_proj_ba.weight")), {0, 1, 4, 5, 2, 3, 6, 7});
  });
  EXPECT_GT(distance_from_golden(ba, kFused), kFar);
}

TEST(H04, projections_with_the_rows_of_another_head_count_are_refused_by_shape) {
  const TestCheckpoint checkpoint(kCheckpoint);
  checkpoint.edit_tensors([](EditableTensors& tensors) {
    auto& a = tensors.at(layer(1, "in_proj_a.weight"));
    a.shape = {12, 32};
  });
  EXPECT_THAT(refusal(checkpoint),
              HasSubstr(layer(1, "in_proj_a.weight") + ": shape [12, 32]; expected [6, 64]"));
}

TEST(H04, b_and_a_in_each_others_place_are_far_from_the_golden_logits) {
  const TestCheckpoint checkpoint(kCheckpoint);
  checkpoint.edit_tensors([](EditableTensors& tensors) {
    std::swap(tensors.at(layer(0, "in_proj_b.weight")), tensors.at(layer(0, "in_proj_a.weight")));
  });
  EXPECT_GT(distance_from_golden(checkpoint), kFar);
}

TEST(H04, b_in_the_order_of_fused_rows_is_far_from_the_golden_logits) {
  const TestCheckpoint checkpoint(kCheckpoint);
  checkpoint.edit_tensors([](EditableTensors& tensors) {
    std::vector<std::size_t> order;  // heads dealt out over the key heads in turn
    for (std::size_t member = 0; member < kGroup; ++member) {
      for (std::size_t key = 0; key < kKeyHeads; ++key) order.push_back(key * kGroup + member);
    }
    permute_rows(tensors.at(layer(0, "in_proj_b.weight")), order);
  });
  EXPECT_GT(distance_from_golden(checkpoint), kFar);
}

TEST(H04, qkv_rows_interleaved_by_key_head_are_far_from_the_golden_logits) {
  const TestCheckpoint checkpoint(kCheckpoint);
  checkpoint.edit_tensors([](EditableTensors& tensors) {
    std::vector<std::size_t> order;
    const auto take = [&](std::size_t first, std::size_t rows) {
      for (std::size_t i = 0; i < rows; ++i) order.push_back(first + i);
    };
    for (std::size_t key = 0; key < kKeyHeads; ++key) {
      take(key * kDim, kDim);
      take((kKeyHeads + key) * kDim, kDim);
      take((2 * kKeyHeads + key * kGroup) * kDim, kGroup * kDim);
    }
    permute_rows(tensors.at(layer(0, "in_proj_qkv.weight")), order);
  });
  EXPECT_GT(distance_from_golden(checkpoint), kFar);
}

}  // namespace
}  // namespace replayssm
