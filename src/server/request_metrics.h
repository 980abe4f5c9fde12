// What the server itself counts; the engine counts the rest.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "engine/engine_state.h"
#include "server/answer.h"

namespace replayssm::server {

// Statuses that responses are counted by; the last stands for all others.
inline constexpr std::array<int, 10> kCountedStatuses = {200, 400, 401, 404, 413,
                                                         429, 499, 500, 503, 0};

struct RequestCounts {
  std::array<std::int64_t, kCountedStatuses.size()> generations{};  // by status
  std::int64_t reasoning_tokens = 0;
  Histogram params_n{{1, 2, 5, 10, 20}};
  Histogram params_max_tokens{{1, 8, 16, 64, 256, 1024, 4096, 16384, 65536}};
};

// All members may be called from any thread.
class RequestMetrics {
 public:
  void submitted(int n, int max_tokens);
  void refused(int status);
  void ended(const AnswerReport& report);
  RequestCounts counts() const;

 private:
  void count(int status);  // under the lock

  mutable std::mutex mutex_;
  RequestCounts counts_;
};

}  // namespace replayssm::server
