// Arguments that no operation may accept are refused by name, and nothing is written.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>

#include "ops/backends.h"
#include "ops/check_arguments.h"
#include "ops/layer_memory.h"

namespace replayssm::tests {
namespace {

class Arguments : public testing::TestWithParam<Backend> {
 protected:
  static constexpr HeadShape kShape{GateKind::gdn, 1, 2};

  void SetUp() override {
    owned_ = GetParam().make(1);
    REPLAYSSM_NEEDS_BACKEND(owned_);
    for (float x : tokens_.qkv) qkv_bf16_.push_back(to_bf16(x));
    BackendMemory* const backend = owned_.memory.get();
    lent_qkv_ = {backend, tokens_.qkv};
    lent_qkv_bf16_ = {backend, qkv_bf16_};
    lent_gate_ = {backend, tokens_.gate};
    lent_beta_ = {backend, tokens_.beta};
    lent_out_ = {backend, out_};
    memory_ = std::make_unique<LayerMemory>(owned_, kShape, geometry_, StorageTypes{}, 3, 3);
    for (int row = 0; row < 3; ++row) memory_->admit(row, row);
    args_.shape = kShape;
    args_.geometry = geometry_;
    args_.states = memory_->states();
    args_.rings = memory_->rings();
    args_.cursors = memory_->cursors();
    args_.qkv = lent_qkv_.put();
    args_.qkv_bf16 = lent_qkv_bf16_.put();
    args_.gate = lent_gate_.put();
    args_.beta = lent_beta_.put();
    args_.out = lent_out_.put();
  }

  // The step is refused, its message names `field`, and no byte changes.
  void refused(const std::string& field, const std::vector<RowTokens>& rows, Route route) {
    args_.rows = rows;
    const auto before = memory_->all_bytes();
    const Status status = route == Route::window   ? owned_.ops->window_step(args_)
                          : route == Route::packed ? owned_.ops->packed_step(args_)
                                                   : owned_.ops->chunk_prefill(args_);
    ASSERT_FALSE(status.ok()) << field;
    EXPECT_NE(status.error().message.find(field), std::string::npos) << status.error().message;
    memory_->fetch();
    lent_out_.get();
    EXPECT_EQ(memory_->all_bytes(), before);
    EXPECT_EQ(out_, std::vector<float>(out_.size(), 5.0f));
  }
  std::vector<RowTokens> window(int row, int count) { return {{RowIndex{row}, 0, count}}; }

  FoldGeometry geometry_ = FoldGeometry::make(16, GetParam().window_max).value();
  Tokens tokens_ = make_tokens(kShape, 40, 1);
  std::vector<bf16> qkv_bf16_;
  std::vector<float> out_ = std::vector<float>(40 * tokens_.out_stride(), 5.0f);
  OwnedOps owned_;
  Lent<float> lent_qkv_, lent_gate_, lent_beta_, lent_out_;
  Lent<bf16> lent_qkv_bf16_;
  std::unique_ptr<LayerMemory> memory_;
  StepArgs args_;
};

// Where cursors are in the memory of a device, an operation cannot look at them.
#define NEEDS_CURSORS_CHECKED() \
  REPLAYSSM_NEEDS(GetParam(), "checks of cursor values are", GetParam().cursors_checked)

INSTANTIATE_TEST_SUITE_P(Backends, Arguments, testing::ValuesIn(all_backends()),
                         [](const auto& test) { return test.param.name; });

TEST_P(Arguments, WindowsOfNoTokensOrMoreThanTheLargestAreRefused) {
  refused("tokens: 17", window(0, 17), Route::window);
  refused("tokens: 0", window(0, 0), Route::window);
  refused("tokens: -1", window(0, -1), Route::packed);
}

TEST_P(Arguments, RowsOutOfRangeOrTwiceAreRefused) {
  refused("row: 3", window(3, 1), Route::window);
  refused("row: -1", window(-1, 1), Route::packed);
  refused("row: 1", {{RowIndex{1}, 0, 1}, {RowIndex{0}, 1, 1}, {RowIndex{1}, 2, 1}}, Route::window);
}

TEST_P(Arguments, TheNullRowMayBeNamedOftenAndHasNoRing) {
  memory_->base[2] = memory_->home[2] = kNullSlot;
  args_.cursors = memory_->cursors();
  args_.rings.rows = 2;
  const RowTokens rows[] = {{RowIndex{2}, 0, 1}, {RowIndex{0}, 1, 1}, {RowIndex{2}, 2, 1}};
  args_.rows = rows;
  EXPECT_FALSE(owned_.ops->window_step(args_).ok()) << "a row like another, without a ring";
  args_.cursors.null_row = RowIndex{2};
  const Status status = owned_.ops->window_step(args_);
  ASSERT_TRUE(status.ok()) << status.error().message;
  lent_out_.get();
  const std::size_t width = tokens_.out_stride();
  const auto zeros = [&](std::size_t token) {
    const auto first = out_.begin() + static_cast<std::ptrdiff_t>(token * width);
    return std::all_of(first, first + static_cast<std::ptrdiff_t>(width),
                       [](float x) { return x == 0.0f; });
  };
  EXPECT_TRUE(zeros(0));
  EXPECT_FALSE(zeros(1));
  EXPECT_TRUE(zeros(2));
  const int accepted[] = {1, 1, 1};
  ASSERT_TRUE(
      owned_.ops->advance({geometry_, Recurrence::replay, args_.cursors, rows, accepted}).ok());
  memory_->fetch();
  EXPECT_EQ(memory_->committed[0], Depth{1});
  EXPECT_EQ(memory_->committed[2], Depth{0});
}

TEST_P(Arguments, PhasesThatDoNotFitTheOperationAreRefused) {
  refused("phase", {{RowIndex{0}, 0, 1, Phase::prefill}}, Route::window);
  refused("phase", {{RowIndex{0}, 0, 4, Phase::verify}}, Route::chunk);
}

TEST_P(Arguments, AFoldThatIsDueNeedsAHomeSlot) {
  NEEDS_CURSORS_CHECKED();
  memory_->committed[1] = Depth{16};
  memory_->home[1] = kNullSlot;
  refused("home slot", window(1, 1), Route::window);
  memory_->home[1] = SlotId{3};
  refused("home slot", window(1, 1), Route::window);
  memory_->home[1] = kNullSlot;
  refused("home slot", {{RowIndex{1}, 0, 20, Phase::prefill}}, Route::chunk);
  refused("home slot", window(1, 1), Route::packed);
}

TEST_P(Arguments, ASlotHasOneWriterAndASharedSlotNone) {
  NEEDS_CURSORS_CHECKED();
  memory_->committed[0] = memory_->committed[1] = Depth{32};
  memory_->checkpoint[0] = memory_->checkpoint[1] = Depth{16};
  memory_->home[1] = memory_->home[0];
  refused("home slot", {{RowIndex{0}, 0, 1}, {RowIndex{1}, 1, 1}}, Route::window);
  memory_->home[1] = SlotId{2};
  memory_->base[1] = memory_->base[0];  // row 0 would fold in place under row 1
  refused("home slot", {{RowIndex{0}, 0, 1}, {RowIndex{1}, 1, 1}}, Route::window);
  refused("home slot", {{RowIndex{1}, 0, 1}, {RowIndex{0}, 1, 1}}, Route::window);
}

TEST_P(Arguments, CursorsThatNoSequenceCanHaveAreRefused) {
  NEEDS_CURSORS_CHECKED();
  memory_->committed[0] = Depth{32};  // 32 pending, at most 31
  refused("committed - checkpoint", window(0, 1), Route::window);
  memory_->checkpoint[0] = Depth{24};
  refused("checkpoint", window(0, 1), Route::window);
  memory_->base[0] = SlotId{9};
  memory_->checkpoint[0] = Depth{16};
  refused("base slot", window(0, 1), Route::window);
}

TEST_P(Arguments, ViewsThatDoNotFitAreRefused) {
  args_.rings.ring_rows = geometry_.ring_rows() / 2;
  refused("ring_rows", window(0, 1), Route::window);
  args_.rings = memory_->rings();
  args_.states.type = DType::f16;
  refused("states.type", window(0, 1), Route::window);
  args_.states = memory_->states();
  args_.states.slot_stride -= 1;
  refused("slot_stride", window(0, 1), Route::packed);
  args_.states = memory_->states();
  args_.rings.correction_type = DType::f16;
  refused("correction_type", window(0, 1), Route::window);
  args_.rings = memory_->rings();
  args_.gate = nullptr;
  refused("gate", window(0, 1), Route::packed);
  args_.gate = lent_gate_.address();
  args_.shape.value_heads = 3;
  args_.shape.key_heads = 2;
  refused("value_heads", window(0, 1), Route::window);
}

TEST_P(Arguments, FoldsOutOfRangeAreRefused) {
  const StateView states[] = {memory_->states()};
  const RingView rings[] = {memory_->rings()};
  std::vector<float> buffer(kShape.state_elements() - 1);
  const auto fold = [&](FoldRow row) {
    const FoldRow rows[] = {row};
    return owned_.ops->fold({kShape, geometry_, states, rings, rows});
  };
  const FoldRow good{RowIndex{0}, Depth{0}, 0, SlotId{0}, SlotId{1}, {}};
  EXPECT_TRUE(fold(good).ok());
  FoldRow bad = good;
  bad.records = 65;
  EXPECT_FALSE(fold(bad).ok());
  bad = good;
  bad.from = Depth{7};
  EXPECT_FALSE(fold(bad).ok());
  bad = good;
  bad.destination = kNullSlot;
  EXPECT_FALSE(fold(bad).ok());
  bad = good;
  bad.buffer = buffer;
  EXPECT_FALSE(fold(bad).ok());
  bad = good;
  bad.row = RowIndex{3};
  EXPECT_FALSE(fold(bad).ok());
}

// What a backend does not have yet it names.
TEST_P(Arguments, WhatIsNotBuiltIsRefusedByName) {
  if (GetParam().packed_max == 1) {
    refused("tokens: 2", {{RowIndex{0}, 0, 2}}, Route::packed);
    refused("first_token: 3", {{RowIndex{0}, 3, 1}}, Route::packed);
    args_.shape = {GateKind::gdn, 1, 9};
    args_.states.slot_stride = args_.shape.state_elements();
    refused("value_heads / key_heads: 9", window(0, 1), Route::window);
  }
}

// Memory that the host may not touch stands for a device's.
TEST(CursorsOnADevice, NoCheckReadsThem) {
  constexpr std::size_t kPage = 4096;
  void* const page = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  const CursorView cursors{static_cast<Depth*>(page), static_cast<Depth*>(page),
                           static_cast<SlotId*>(page), static_cast<SlotId*>(page), 2};
  ArgumentCheck check({DType::f32, DType::bf16}, {DType::f32, DType::bf16}, {DType::bf16},
                      DType::bf16, CursorMemory::device);
  bf16 x[64];
  float f[64];
  const FoldGeometry geometry = FoldGeometry::make(16, 8).value();
  for (const StepKind kind : {StepKind::window, StepKind::chunk}) {
    const Phase phase = kind == StepKind::chunk ? Phase::prefill : Phase::verify;
    const std::vector<RowTokens> rows = {{RowIndex{1}, 0, 3, phase}};
    const std::vector<int> accepted = {3};
    StepArgs step;
    step.shape = {GateKind::gdn, 1, 1};
    step.geometry = geometry;
    step.states = {f, DType::f32, step.shape.state_elements(), 2};
    step.rings = {x, DType::bf16, f, f, DType::f32, f, 2, geometry.ring_rows()};
    step.cursors = cursors;
    step.rows = rows;
    step.qkv_bf16 = x;
    step.gate = step.beta = f;
    step.out = f;
    EXPECT_TRUE(check.step(step, kind).ok()) << check.step(step, kind).error().message;
    ConvArgs conv;
    conv.geometry = geometry;
    conv.rings = {x, DType::bf16, 2, geometry.conv_rows(), 16};
    conv.tails = {x, DType::bf16, 48, 2, 16};
    conv.cursors = cursors;
    conv.rows = rows;
    conv.weight = f;
    conv.input_bf16 = x;
    conv.out = f;
    EXPECT_TRUE(check.conv(conv, kind).ok()) << check.conv(conv, kind).error().message;
    // Any row may write a tail there, so views of tails must fit always.
    conv.tails.channels = 24;
    EXPECT_EQ(check.conv(conv, kind).error().message,
              "tails.channels: 24 is not accepted; expected 16, as the ring");
    EXPECT_TRUE(check.advance({geometry, Recurrence::replay, cursors, rows, accepted}).ok());
  }
  EXPECT_EQ(munmap(page, kPage), 0);
}

}  // namespace
}  // namespace replayssm::tests
