// Holds a stream up, so that a test sees what happens while the device has not come so far.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace replayssm::cuda {

// Work that is put on the stream behind it waits until it is opened. After ten seconds it opens
// itself: somebody has waited for what waits here.
class StreamGate {
 public:
  explicit StreamGate(cudaStream_t stream) {
    EXPECT_EQ(cudaLaunchHostFunc(stream, &StreamGate::hold, this), cudaSuccess);
  }
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;
  ~StreamGate() {
    open();
    while (!passed_) std::this_thread::yield();
  }

  // To be called while nothing should have passed.
  void open() {
    EXPECT_FALSE(passed_ && !open_) << "somebody waited for work behind the gate";
    open_ = true;
  }

 private:
  static void hold(void* data) {
    auto& gate = *static_cast<StreamGate*>(data);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!gate.open_ && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    gate.passed_ = true;
  }

  std::atomic<bool> open_ = false;
  std::atomic<bool> passed_ = false;
};

}  // namespace replayssm::cuda
