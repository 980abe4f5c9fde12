// With fp32 activations the model computes what transformers computes in fp32.
//
// Tolerance: 1e-4 of the largest value, the agreement asked for. Both sides round to 24 bits and
// sum in different orders: a product of n terms differs by about sqrt(n) 2^-24, under 1e-6 for the
// widest sum here (n = 1,024), and some 40 such roundings follow each other through the layers:
// 1e-5 is what a right implementation stays below, so that is what is asked.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "e2e/parity_golden.h"
#include "e2e/parity_sequence.h"

namespace replayssm {
namespace {

constexpr double kTolerance = 1e-5;

struct ParityCase {
  const char* checkpoint;
  Recurrence recurrence;
  int chunk;  // tokens of a prompt chunk
  int fold_block = 16;
  bool deterministic = false;
};

std::string name_of_case(const testing::TestParamInfo<ParityCase>& info) {
  const ParityCase& c = info.param;
  return std::string(c.checkpoint) + (c.recurrence == Recurrence::replay ? "_replay" : "_packed") +
         "_block" + std::to_string(c.fold_block) + "_chunk" + std::to_string(c.chunk) +
         (c.deterministic ? "_deterministic" : "");
}

class Float32Parity : public testing::TestWithParam<ParityCase> {
 protected:
  ModelOptions options() const {
    ModelOptions options;
    options.recurrence = GetParam().recurrence;
    options.geometry = *FoldGeometry::make(GetParam().fold_block, 1);
    options.deterministic = GetParam().deterministic;
    options.max_step_tokens = 128;
    return options;
  }

  std::vector<float> prefill(ParitySequence& sequence, std::span<const TokenId> prompt) const {
    std::vector<float> logits;
    while (!prompt.empty()) {
      const auto size = std::min<std::size_t>(prompt.size(), GetParam().chunk);
      const auto part = sequence.prefill(prompt.first(size));
      logits.insert(logits.end(), part.begin(), part.end());
      prompt = prompt.subspan(size);
    }
    return logits;
  }

  Golden golden_{GetParam().checkpoint};
};

TEST_P(Float32Parity, layers_and_logits_of_each_prompt_equal_transformers) {
  for (const std::string prompt : {"prompt.0.", "prompt.1."}) {
    ParitySequence sequence(checkpoint_directory(GetParam().checkpoint), options());
    const auto logits = prefill(sequence, golden_.ids(prompt + "ids"));
    for (int n = 0; n < sequence.config().layer_count(); ++n) {
      for (const char* part : {"mixer", "output"}) {
        const std::string name = "layers." + std::to_string(n) + "." + part;
        const auto found = sequence.observed().find(name);
        ASSERT_NE(found, sequence.observed().end()) << name;
        const double difference =
            largest_difference(found->second, golden_.floats("float32." + prompt + name));
        EXPECT_LT(difference, kTolerance) << prompt << name;
      }
    }
    const auto expected = columns_of(golden_.floats("float32." + prompt + "logits"),
                                     sequence.config().vocab_rows, sequence.config().vocab_size);
    const double difference = largest_difference(logits, expected);
    EXPECT_LT(difference, kTolerance) << prompt;
    RecordProperty("logits_" + prompt.substr(0, 8), std::to_string(difference));
  }
}

TEST_P(Float32Parity, state_after_a_prompt_equals_transformers) {
  ParitySequence sequence(checkpoint_directory(GetParam().checkpoint), options());
  prefill(sequence, golden_.ids("prompt.1.ids"));
  int compared = 0;
  int linear = 0;
  for (int n = 0; n < sequence.config().layer_count(); ++n) {
    if (sequence.config().layers[n] != LayerKind::linear) continue;
    const std::string name = "float32.state." + std::to_string(n);
    if (golden_.has(name)) {
      EXPECT_LT(largest_difference(sequence.state(linear), golden_.floats(name)), kTolerance);
      ++compared;
    }
    ++linear;
  }
  EXPECT_EQ(compared, 1);
}

TEST_P(Float32Parity, greedy_tokens_equal_transformers) {
  ParitySequence sequence(checkpoint_directory(GetParam().checkpoint), options());
  auto logits = prefill(sequence, golden_.ids("prompt.1.ids"));
  const auto ids = golden_.ids("float32.greedy.ids");
  const auto golden_logits = golden_.floats("float32.greedy.logits");
  const int rows = sequence.config().vocab_rows;
  const int real = sequence.config().vocab_size;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto last = std::span(logits).last(real);
    const auto expected = std::span(golden_logits).subspan(i * rows, real);
    EXPECT_LT(largest_difference(last, expected), kTolerance) << "token " << i;
    EXPECT_EQ(std::max_element(last.begin(), last.end()) - last.begin(), ids[i]) << "token " << i;
    logits = sequence.decode(ids[i]);
  }
}

// One chunk; chunks that end inside and at the ends of fold blocks; replay and packed.
std::vector<ParityCase> cases() {
  std::vector<ParityCase> all;
  for (const char* checkpoint :
       {"ratio1_float32_flat_tied", "ratio2_float16_nested_untied", "ratio3_bfloat16_flat_untied",
        "ratio1_bfloat16_yarn_nested_tied", "next_ratio2_bfloat16_untied",
        "next_ratio3_float32_tied", "float8_ratio2_bfloat16_untied", "kimi_bfloat16_untied",
        "kda_hybrid_bfloat16_tied"}) {
    all.push_back({checkpoint, Recurrence::replay, 128});
    all.push_back({checkpoint, Recurrence::replay, 23, 8});
    all.push_back({checkpoint, Recurrence::replay, 32, 32, true});
    all.push_back({checkpoint, Recurrence::packed, 128});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Parity, Float32Parity, testing::ValuesIn(cases()), name_of_case);

}  // namespace
}  // namespace replayssm
