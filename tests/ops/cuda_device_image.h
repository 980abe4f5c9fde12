// An Image's counterpart in device memory, and the operations run over it.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "cuda_step_image.h"
#include "ops/cuda/cuda_check.h"
#include "ops/cuda/device_memory.h"
#include "ops/cuda/launch.h"

namespace replayssm::cuda::test {

// What the thread is about, for messages.
inline thread_local std::string current_job;

// Ends the program at once: other threads may be in the middle of theirs.
[[noreturn]] inline void give_up(const Error& error) {
  std::fprintf(stderr, "%s: %s\n", current_job.c_str(), error.message.c_str());
  std::fflush(nullptr);
  std::_Exit(2);
}
inline void must(const Status& status) {
  if (!status.ok()) give_up(status.error());
}
#define CUDA_MUST(call) ::replayssm::cuda::test::must(REPLAYSSM_CUDA_STATUS(call))

template <class T>
T must(Result<T> result) {
  if (!result.ok()) give_up(result.error());
  return *std::move(result);
}

// Device memory that stays with its thread for the next one who needs as much: every cudaFree waits
// for what all other threads have launched.
class SpareBuffer {
 public:
  SpareBuffer() = default;
  explicit SpareBuffer(std::size_t bytes) {
    auto& spare = of_thread();
    const auto fits = std::find_if(spare.begin(), spare.end(), [&](const DeviceBuffer& b) {
      return b.bytes() >= bytes && b.bytes() <= 2 * bytes + 4096;
    });
    if (fits == spare.end()) {
      buffer_ = must(DeviceBuffer::make(bytes));
    } else {
      buffer_ = std::move(*fits);
      spare.erase(fits);
    }
  }
  SpareBuffer(SpareBuffer&& other) noexcept { *this = std::move(other); }
  SpareBuffer& operator=(SpareBuffer&& other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~SpareBuffer() {
    if (buffer_.as<void>() != nullptr) of_thread().push_back(std::move(buffer_));
  }
  template <class T>
  T* as() const {
    return buffer_.as<T>();
  }

 private:
  static std::vector<DeviceBuffer>& of_thread() {
    static thread_local std::vector<DeviceBuffer> spare;
    return spare;
  }
  DeviceBuffer buffer_;
};

class DeviceImage {
 public:
  // `slot_stride` 0: as in the host image; else slots lie that many elements apart.
  explicit DeviceImage(const Image& m, cudaStream_t stream, std::int64_t slot_stride = 0)
      : stream_(stream), stride_(slot_stride == 0 ? m.slot_stride : slot_stride) {
    states_ = SpareBuffer(static_cast<std::size_t>(m.slots) * static_cast<std::size_t>(stride_) *
                          m.element());
    auto room = [](const auto& v) { return SpareBuffer(v.size() * sizeof(v[0])); };
    corrections_ = room(m.corrections);
    out_ = room(m.out);
    keys_ = room(m.keys);
    scales_ = room(m.key_scales);
    gates_ = room(m.gates);
    qkv_ = room(m.qkv);
    gate_ = room(m.gate);
    beta_ = room(m.beta);
    a_log_ = room(m.a_log);
    dt_bias_ = room(m.dt_bias);
    row_ = room(m.row);
    committed_ = room(m.committed);
    checkpoint_ = room(m.checkpoint);
    base_ = room(m.base);
    home_ = room(m.home);
    accepted_ = room(m.accepted);
    first_token_ = room(m.first_token);
    tokens_ = room(m.tokens);
    put(corrections_, m.corrections);
    put(out_, m.out);
    put(keys_, m.keys);
    put(scales_, m.key_scales);
    put(gates_, m.gates);
    put(committed_, m.committed);
    put(checkpoint_, m.checkpoint);
    put(base_, m.base);
    put(home_, m.home);
    put(accepted_, m.accepted);
    for (int s = 0; s < m.slots; ++s) {
      CUDA_MUST(cudaMemcpyAsync(states_.as<char>() + slot_bytes(m, s, stride_),
                                m.states.data() + slot_bytes(m, s, m.slot_stride),
                                static_cast<std::size_t>(m.slot_stride) * m.element(),
                                cudaMemcpyHostToDevice, stream_));
    }
    put_inputs(m);
    m_ = &m;
    CUDA_MUST(cudaStreamSynchronize(stream_));
  }

  // Rows and per-token arrays of another step of the same batch.
  void put_inputs(const Image& m) {
    put(qkv_, m.qkv);
    put(gate_, m.gate);
    put(beta_, m.beta);
    put(a_log_, m.a_log);
    put(dt_bias_, m.dt_bias);
    put(row_, m.row);
    put(first_token_, m.first_token);
    put(tokens_, m.tokens);
  }

  StepArgs args() const {
    StepArgs a;
    a.batch = {row_.as<int>(),  committed_.as<int>(), checkpoint_.as<int>(),  base_.as<int>(),
               home_.as<int>(), m_->o.entries,        first_token_.as<int>(), tokens_.as<int>()};
    a.state = {states_.as<void>(), stride_};
    a.ring = {keys_.as<bf16>(), scales_.as<float>(), corrections_.as<void>(), gates_.as<float>()};
    a.qkv = qkv_.as<bf16>();
    a.token_stride = m_->token_stride;
    a.gate = gate_.as<float>();
    a.beta = beta_.as<float>();
    if (m_->o.projected_gates) {
      a.a_log = a_log_.as<float>();
      a.dt_bias = dt_bias_.as<float>();
      a.lower_bound = m_->o.lower_bound;
    }
    a.out = out_.as<void>();
    a.out_f32 = 1;
    a.key_heads = m_->o.heads.key_heads;
    a.value_heads = m_->o.heads.value_heads;
    a.ring_rows = m_->o.ring_rows;
    a.fold_block = m_->o.fold_block;
    a.query_scale = 0.08838834764831845f;
    a.settled = m_->o.settled ? 1 : 0;
    return a;
  }
  FoldLayer layer() const {
    return {{states_.as<void>(), stride_},
            {keys_.as<bf16>(), scales_.as<float>(), corrections_.as<void>(), gates_.as<float>()}};
  }
  AdvanceArgs advance(bool packed) const {
    return {row_.as<int>(),        accepted_.as<int>(), committed_.as<int>(),
            checkpoint_.as<int>(), base_.as<int>(),     home_.as<int>(),
            m_->o.entries,         m_->o.fold_block,    packed ? 1 : 0};
  }

  // Everything an operation may write, back into `m`.
  void get(Image& m) const {
    CUDA_MUST(cudaStreamSynchronize(stream_));
    take(corrections_, m.corrections);
    take(out_, m.out);
    take(keys_, m.keys);
    take(scales_, m.key_scales);
    take(gates_, m.gates);
    take(committed_, m.committed);
    take(checkpoint_, m.checkpoint);
    take(base_, m.base);
    for (int s = 0; s < m.slots; ++s) {
      CUDA_MUST(cudaMemcpyAsync(m.states.data() + slot_bytes(m, s, m.slot_stride),
                                states_.as<char>() + slot_bytes(m, s, stride_),
                                static_cast<std::size_t>(m.slot_stride) * m.element(),
                                cudaMemcpyDeviceToHost, stream_));
    }
    CUDA_MUST(cudaStreamSynchronize(stream_));
  }

 private:
  static std::size_t slot_bytes(const Image& m, int slot, std::int64_t stride) {
    return static_cast<std::size_t>(slot) * static_cast<std::size_t>(stride) * m.element();
  }
  template <class T>
  void put(const SpareBuffer& to, const std::vector<T>& from) {
    if (from.empty()) return;
    CUDA_MUST(cudaMemcpyAsync(to.as<void>(), from.data(), from.size() * sizeof(T),
                              cudaMemcpyHostToDevice, stream_));
  }
  template <class T>
  void take(const SpareBuffer& from, std::vector<T>& to) const {
    if (to.empty()) return;
    CUDA_MUST(cudaMemcpyAsync(to.data(), from.as<void>(), to.size() * sizeof(T),
                              cudaMemcpyDeviceToHost, stream_));
  }

  cudaStream_t stream_;
  std::int64_t stride_;
  const Image* m_ = nullptr;  // the host image it was made from outlives it
  SpareBuffer states_, corrections_, out_, keys_, scales_, gates_, qkv_, gate_, beta_, a_log_,
      dt_bias_, row_, committed_, checkpoint_, base_, home_, accepted_, first_token_, tokens_;
};

// Runs one operation over a copy of `before` and returns what came out.
inline Image window_on_device(const Image& before, const DeviceLimits& limits, cudaStream_t stream,
                              const PlanWishes& wishes = {}, std::int64_t slot_stride = 0) {
  DeviceImage device(before, stream, slot_stride);
  must(launch_window_step(must(plan_window_step(before.geometry(), limits, wishes)), device.args(),
                          stream));
  Image after = before;
  device.get(after);
  return after;
}
// before.o.window is the most tokens of a chunk, not of a window.
inline Image chunk_on_device(const Image& before, const DeviceLimits& limits, cudaStream_t stream,
                             int window_max, const PlanWishes& wishes = {}) {
  DeviceImage device(before, stream);
  StepGeometry geometry = before.geometry();
  geometry.window_max = window_max;
  must(launch_chunk_prefill(must(plan_chunk_prefill(geometry, limits, wishes)), device.args(),
                            stream));
  Image after = before;
  device.get(after);
  return after;
}
inline Image packed_on_device(const Image& before, const DeviceLimits& limits, cudaStream_t stream,
                              const PlanWishes& wishes = {}) {
  DeviceImage device(before, stream);
  must(launch_packed_step(must(plan_packed_step(before.geometry(), limits, wishes)), device.args(),
                          stream));
  Image after = before;
  device.get(after);
  return after;
}

}  // namespace replayssm::cuda::test
