// A device's memory as the pools have it: what waits, and what comes after what. Skipped where
// there is no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "ops/cuda/cuda_space.h"
#include "stream_gate.h"

namespace replayssm::cuda {
namespace {

class CudaSpaceTest : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "this machine has no GPU";
    }
    stream_ = std::move(*Stream::make());
    space_.emplace(std::move(*CudaSpace::make(stream_)));
    // The first launch of a kernel may wait.
    SpaceBuffer memory(*space_, 64);
    fill(memory.data(), 64, 1);
    const std::uint32_t word = 5;
    const MemoryCopy copy{reinterpret_cast<const std::byte*>(&word), 0, memory.data(), 0, 4};
    ASSERT_TRUE(space_->write({&copy, 1}).ok());
    ASSERT_TRUE(wait_for(stream_).ok());
  }

  std::vector<std::uint8_t> bytes_at(const std::byte* data, std::size_t count) {
    std::vector<std::uint8_t> bytes(count);
    const MemoryCopy copy{data, 0, reinterpret_cast<std::byte*>(bytes.data()), 0, count};
    EXPECT_TRUE(space_->read({&copy, 1}).ok());
    return bytes;
  }
  bool over_within_five_seconds(Transfer transfer) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (!space_->over(transfer) && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    return space_->over(transfer);
  }
  void fill(std::byte* data, std::size_t bytes, unsigned char byte) {
    const MemoryRegion region{data, bytes};
    ASSERT_TRUE(space_->fill({&region, 1}, byte).ok());
  }

  Stream stream_;
  std::optional<CudaSpace> space_;
};

// Four numbers into four arrays, as a row's cursor.
TEST_F(CudaSpaceTest, SmallWritesWaitForNothingAndAreInOrder) {
  constexpr std::size_t kPitch = 100 * sizeof(std::uint32_t);
  SpaceBuffer memory(*space_, 4 * kPitch);
  const std::int64_t before = space_->waits();
  {
    StreamGate gate(stream_);
    fill(memory.data(), memory.bytes(), 0xee);
    for (std::uint32_t turn = 1; turn <= 3; ++turn) {
      std::uint32_t values[] = {turn, turn + 10, turn + 20, turn + 30};
      const MemoryCopy copy{reinterpret_cast<const std::byte*>(values),
                            4,
                            memory.data() + 7 * sizeof(std::uint32_t),
                            kPitch,
                            4,
                            4};
      ASSERT_TRUE(space_->write({&copy, 1}).ok());
      std::memset(values, 0, sizeof(values));  // theirs again
    }
    gate.open();
  }
  EXPECT_EQ(space_->waits(), before);
  const auto bytes = bytes_at(memory.data(), memory.bytes());
  EXPECT_EQ(space_->waits(), before + 1);
  for (std::uint32_t array = 0; array < 4; ++array) {
    for (std::uint32_t i = 0; i < 100; ++i) {
      std::uint32_t value = 0;
      std::memcpy(&value, bytes.data() + array * kPitch + i * 4, 4);
      EXPECT_EQ(value, i == 7 ? 3 + 10 * array : 0xeeeeeeeeu) << array << " " << i;
    }
  }
}

// What is too large, or not of whole words.
TEST_F(CudaSpaceTest, OtherWritesArriveToo) {
  SpaceBuffer memory(*space_, 4096);
  for (const std::size_t count : {1, 3, 63, 64, 65, 68, 4095}) {
    for (const std::size_t at : {0, 1}) {
      fill(memory.data(), memory.bytes(), 0);
      std::vector<std::uint8_t> bytes(count);
      for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(i + 1);
      const MemoryCopy copy{reinterpret_cast<const std::byte*>(bytes.data()), 0, memory.data() + at,
                            0, count};
      ASSERT_TRUE(space_->write({&copy, 1}).ok());
      EXPECT_EQ(bytes_at(memory.data() + at, count), bytes) << count << " " << at;
    }
  }
}

TEST_F(CudaSpaceTest, ATransferTakesPlaceWhileTheStreamIsHeldUp) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  SpaceBuffer memory(*space_, kBytes);
  std::byte* const outside = space_->allocate_outside(kBytes).value();
  std::memset(outside, 0, kBytes);
  fill(memory.data(), kBytes, 7);
  const MemoryCopy out{memory.data(), 0, outside, 0, kBytes};
  const std::int64_t before = space_->waits();
  const auto first = space_->fetch({&out, 1});
  ASSERT_TRUE(first.ok());
  {
    // What the stream is given behind the transfer's beginning, and what cannot end.
    StreamGate gate(stream_);
    fill(memory.data(), kBytes, 8);
    EXPECT_TRUE(over_within_five_seconds(*first));
    gate.open();
  }
  EXPECT_EQ(space_->waits(), before);
  EXPECT_EQ(std::to_integer<int>(outside[0]), 7);
  EXPECT_EQ(std::to_integer<int>(outside[kBytes - 1]), 7);
  space_->free_outside(outside, kBytes);
}

// The caller gives back what the copies touch: none of them may still be on its way.
TEST_F(CudaSpaceTest, AfterAnErrorNoPartOfATransferIsUnderWay) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  SpaceBuffer memory(*space_, kBytes);
  std::byte* const outside = space_->allocate_outside(kBytes).value();
  for (unsigned char turn = 1; turn <= 3; ++turn) {
    std::memset(outside, 0, kBytes);
    fill(memory.data(), kBytes, turn);
    const MemoryCopy copies[] = {{memory.data(), 0, outside, 0, kBytes},
                                 {memory.data(), 0, nullptr, 0, kBytes}};
    ASSERT_FALSE(space_->fetch(copies).ok());
    const std::vector<std::byte> seen(outside, outside + kBytes);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), std::byte{turn}),
              static_cast<std::ptrdiff_t>(kBytes));
    const auto transfer = space_->fetch({copies, 1});
    ASSERT_TRUE(transfer.ok()) << transfer.error().message;
    EXPECT_TRUE(over_within_five_seconds(*transfer));
  }
  space_->free_outside(outside, kBytes);
}

TEST_F(CudaSpaceTest, ATransferBeginsBehindWhatCameBefore) {
  constexpr std::size_t kBytes = 1 << 20;
  SpaceBuffer memory(*space_, kBytes);
  std::byte* const outside = space_->allocate_outside(kBytes).value();
  Transfer transfer;
  {
    StreamGate gate(stream_);
    fill(memory.data(), kBytes, 9);
    const MemoryCopy out{memory.data(), 0, outside, 0, kBytes};
    transfer = space_->fetch({&out, 1}).value();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(space_->over(transfer));
    gate.open();
  }
  EXPECT_TRUE(over_within_five_seconds(transfer));
  EXPECT_EQ(std::to_integer<int>(outside[kBytes - 1]), 9);
  space_->free_outside(outside, kBytes);
}

// Out, then what follows overwrites; in, then what follows copies on.
TEST_F(CudaSpaceTest, WhatFollowsATransferComesAfterIt) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  SpaceBuffer memory(*space_, kBytes), other(*space_, kBytes);
  std::byte* const outside = space_->allocate_outside(2 * kBytes).value();
  const std::int64_t before = space_->waits();
  for (unsigned char turn = 1; turn <= 5; ++turn) {
    fill(memory.data(), kBytes, turn);
    const MemoryCopy out{memory.data(), 0, outside, 0, kBytes};
    const auto left = space_->fetch({&out, 1});
    ASSERT_TRUE(left.ok());
    ASSERT_TRUE(space_->follow(*left).ok());
    fill(memory.data(), kBytes, 0);
    const MemoryCopy in{outside, 0, memory.data(), 0, kBytes};
    const auto arrived = space_->send({&in, 1});
    ASSERT_TRUE(arrived.ok());
    EXPECT_LT(*left, *arrived);
    ASSERT_TRUE(space_->follow(*arrived).ok());
    const MemoryCopy on{memory.data(), 0, other.data(), 0, kBytes};
    ASSERT_TRUE(space_->copy({&on, 1}).ok());
    if (turn < 5) continue;
    EXPECT_EQ(space_->waits(), before);
    const auto bytes = bytes_at(other.data(), kBytes);
    EXPECT_EQ(std::count(bytes.begin(), bytes.end(), turn), static_cast<std::ptrdiff_t>(kBytes));
    EXPECT_TRUE(space_->over(*arrived));
  }
  space_->free_outside(outside, 2 * kBytes);
}

}  // namespace
}  // namespace replayssm::cuda
