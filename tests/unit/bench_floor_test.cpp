#include <gtest/gtest.h>

#include "byte_floor.h"

namespace replayssm::bench {
namespace {

// Expected values worked out by hand from the formulas' definition, in microseconds on a card that
// copies 4.18 TB/s; three significant digits.
constexpr double kBytesPerUs = 4.18e6;
constexpr HeadShape kGdn{GateKind::gdn, 16, 48};
constexpr HeadShape kKda{GateKind::kda, 32, 32};

TEST(ByteFloor, DecodeOfAWholeRingCycle) {
  EXPECT_NEAR(decode_bytes({kGdn, DType::bf16}, 128, 16) / kBytesPerUs, 57.0, 0.1);
  EXPECT_NEAR(decode_bytes({kGdn, DType::f32}, 128, 16) / kBytesPerUs, 112, 0.5);
  EXPECT_NEAR(decode_bytes({kKda, DType::bf16}, 128, 16) / kBytesPerUs, 45.2, 0.1);
  EXPECT_NEAR(decode_bytes({kKda, DType::f32}, 128, 16) / kBytesPerUs, 81.7, 0.1);
}

TEST(ByteFloor, PackedStep) {
  EXPECT_NEAR(packed_bytes({kGdn, DType::bf16}, 128) / kBytesPerUs, 97.3, 0.1);
  EXPECT_NEAR(packed_bytes({kGdn, DType::f32}, 128) / kBytesPerUs, 193.7, 0.1);
  EXPECT_NEAR(packed_bytes({kKda, DType::bf16}, 128) / kBytesPerUs, 65.7, 0.3);
  EXPECT_NEAR(packed_bytes({kKda, DType::f32}, 128) / kBytesPerUs, 129.9, 0.3);
}

TEST(ByteFloor, Verification) {
  const FloorShape shape{kGdn, DType::bf16};
  EXPECT_NEAR(verify_bytes(shape, 128, 16, 4, 0, 0) / kBytesPerUs, 54, 0.5);
  EXPECT_NEAR(verify_bytes(shape, 128, 16, 8, 8, 0) / kBytesPerUs, 64, 0.5);
  EXPECT_NEAR(verify_bytes(shape, 128, 16, 8, 10.9, 3.6) / kBytesPerUs, 77, 0.5);
}

TEST(ByteFloor, FoldOfAllLayers) {
  EXPECT_NEAR(fold_bytes({kGdn, DType::bf16}, 128, 48, 4) / kBytesPerUs, 4720, 10);
  EXPECT_NEAR(fold_bytes({kGdn, DType::bf16}, 128, 48, 16) / kBytesPerUs, 5020, 10);
}

}  // namespace
}  // namespace replayssm::bench
