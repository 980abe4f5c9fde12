// Faults C03 (jundot/omlx#2496) and C09 (modular/modular#6681; LMCache/LMCache#4247;
// waybarrios/vllm-mlx#217): a saved sequence lacks a part, KDA's state for one, or its parts stand
// at different depths. An image has every part at one depth, or it is refused and nothing is held.
#include <gtest/gtest.h>

#include <cstring>

#include "cache/sequence_image.h"
#include "cache/sequence_memory.h"
#include "ops/linear_ops.h"

namespace replayssm {
namespace {

SequenceLayout layout_of(GateKind gate) {
  SequenceLayout layout;
  layout.linear_layers = 2;
  layout.attention_layers = 1;
  layout.heads = {gate, 1, 1};
  layout.kv_heads = 1;
  layout.head_dim = 64;
  layout.geometry = FoldGeometry::make(8, 1).value();
  layout.page_tokens = 4;
  return layout;
}

class MovedSequence : public testing::TestWithParam<GateKind> {
 protected:
  MovedSequence() : ops_(make_cpu_ops(threads_)), source_(layout_of(GetParam()), {1, 1, 8}) {
    const Residence sequence = source_.admit(Cursor{Depth{13}, Depth{8}}).value();
    ByteWriter out;
    EXPECT_TRUE(write_image(source_, sequence, *ops_, out).ok());
    image_ = std::move(out).take();
  }

  ThreadPool threads_{1};
  std::unique_ptr<LinearOps> ops_;
  SequenceMemory source_;
  std::vector<std::byte> image_;
};

INSTANTIATE_TEST_SUITE_P(Gates, MovedSequence, testing::Values(GateKind::gdn, GateKind::kda),
                         [](const auto& test) {
                           return test.param == GateKind::gdn ? "gdn" : "kda";
                         });

// From the shapes: formats and cursor, states, conv tails, records, conv inputs, KV.
TEST_P(MovedSequence, C03ItsImageHasTheBytesOfEveryPart) {
  const SequenceLayout layout = layout_of(GetParam());
  const std::size_t gate = layout.heads.gate_width() * sizeof(float);
  const std::size_t record = kKeyDim * 4 + 4 + kValueDim * 4 + gate;
  const std::size_t input = static_cast<std::size_t>(layout.heads.channels()) * 4;
  const std::size_t parts = 15 * 4 + 2 * (layout.heads.state_elements() * 4) + 2 * (3 * input) +
                            2 * (5 * record) + 2 * (4 * input) + 13 * (2 * 64 * 4);
  EXPECT_EQ(image_.size(), parts);
}

TEST_P(MovedSequence, C03GatesInAnotherFormAreRefused) {
  SequenceMemory target(layout_of(GetParam()), {1, 1, 8}, Poison::on);
  const auto others = make_reference_ops();
  ASSERT_NE(others->gate_form(), ops_->gate_form());
  ByteReader in(image_);
  const auto refused = read_image(target, *others, in);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("gate form"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(target.rows().used(), 0);
}

TEST_P(MovedSequence, C03AMissingPartIsRefusedWhereverItsBytesEnd) {
  SequenceMemory target(layout_of(GetParam()), {1, 1, 8}, Poison::on);
  for (std::size_t kept = 0; kept < image_.size(); kept += 509) {
    ByteReader in(std::span<const std::byte>(image_).first(kept));
    EXPECT_FALSE(read_image(target, *ops_, in).ok()) << kept;
    ASSERT_EQ(target.rows().used() + target.slots().used() + target.pages().used(), 0) << kept;
  }
}

TEST_P(MovedSequence, C09PartsOfAnotherDepthAreRefused) {
  SequenceMemory target(layout_of(GetParam()), {1, 1, 8}, Poison::on);
  const std::size_t committed = 11 * sizeof(std::int32_t);  // after the formats
  for (const auto& [t, c] : {std::pair{12, 8}, {14, 8}, {16, 8}, {13, 0}, {8, 0}, {21, 16}}) {
    auto image = image_;
    std::memcpy(image.data() + committed, &t, sizeof(t));
    std::memcpy(image.data() + committed + sizeof(t), &c, sizeof(c));
    ByteReader in(image);
    const bool read = read_image(target, *ops_, in).ok();
    EXPECT_TRUE(!read || in.left() != 0) << "t " << t << ", c " << c;
    ASSERT_EQ(target.rows().used() + target.slots().used() + target.pages().used(), 0);
  }
}

}  // namespace
}  // namespace replayssm
