// The host's memory as a device's in one respect: transfers take place when the test says so, or
// when something has to follow them. Who touches memory that is on its way gives itself away by
// wrong numbers.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <span>
#include <vector>

#include "core/memory_space.h"

namespace replayssm {

class SlowTransfers final : public MemorySpace {
 public:
  // Lets the oldest transfer take place.
  void progress() {
    if (pending_.empty()) return;
    EXPECT_TRUE(host_space().copy(pending_.front()).ok());
    pending_.pop_front();
    ++over_.number;
  }
  std::int64_t transfers() const { return newest_.number; }
  int under_way() const { return static_cast<int>(pending_.size()); }
  // So many more begin, and then one fails.
  void fail_after(int transfers) { begin_before_failure_ = transfers; }
  // How often something had to follow a transfer that was not over.
  int followed() const { return followed_; }

  bool on_host() const override { return false; }
  Result<std::byte*> allocate(std::size_t bytes) override { return host_space().allocate(bytes); }
  // As a device does, it waits.
  void free(std::byte* data, std::size_t bytes) noexcept override {
    while (!pending_.empty()) progress();
    host_space().free(data, bytes);
  }
  Status copy(std::span<const MemoryCopy> copies) override { return host_space().copy(copies); }
  Status fill(std::span<const MemoryRegion> regions, unsigned char byte) override {
    return host_space().fill(regions, byte);
  }
  // A device's host waits here.
  Status read(std::span<const MemoryCopy> copies) override {
    ++waits_;
    return host_space().copy(copies);
  }
  Status write(std::span<const MemoryCopy> copies) override {
    std::size_t bytes = 0;
    for (const MemoryCopy& each : copies) bytes += each.bytes * each.count;
    waits_ += bytes > kSmallWrite ? 1 : 0;
    return host_space().copy(copies);
  }
  std::int64_t waits() const override { return waits_; }

  // The largest piece that allocate_outside() gives.
  void limit_outside(std::size_t bytes) { limit_outside_ = bytes; }
  Result<std::byte*> allocate_outside(std::size_t bytes) override {
    if (bytes > limit_outside_) return Error{fmt::format("{} bytes are too many", bytes)};
    return host_space().allocate_outside(bytes);
  }
  void free_outside(std::byte* data, std::size_t bytes) noexcept override { free(data, bytes); }
  Result<Transfer> fetch(std::span<const MemoryCopy> copies) override { return begin(copies); }
  Result<Transfer> send(std::span<const MemoryCopy> copies) override { return begin(copies); }
  Result<Transfer> copy_beside(std::span<const MemoryCopy> copies) override {
    return begin(copies);
  }
  Transfer ended() override {
    ++asked_;
    return over_;
  }
  // How often it was asked what has ended.
  int asked() const { return asked_; }
  Status follow(Transfer transfer) override {
    followed_ += transfer <= over_ ? 0 : 1;
    while (transfer > over_) progress();
    return {};
  }

 private:
  Result<Transfer> begin(std::span<const MemoryCopy> copies) {
    if (begin_before_failure_-- == 0) return Error{"a transfer that is to fail"};
    pending_.emplace_back(copies.begin(), copies.end());
    ++newest_.number;
    return newest_;
  }

  std::deque<std::vector<MemoryCopy>> pending_;
  Transfer newest_, over_;
  std::int64_t waits_ = 0;
  std::size_t limit_outside_ = std::size_t{1} << 40;
  int followed_ = 0, asked_ = 0;
  int begin_before_failure_ = -1;  // below 0: none fails
};

}  // namespace replayssm
