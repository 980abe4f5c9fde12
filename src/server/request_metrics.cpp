#include "server/request_metrics.h"

#include <algorithm>

namespace replayssm::server {

void RequestMetrics::count(int status) {
  const auto found = std::find(kCountedStatuses.begin(), kCountedStatuses.end() - 1, status);
  ++counts_.generations[static_cast<std::size_t>(found - kCountedStatuses.begin())];
}

void RequestMetrics::submitted(int n, int max_tokens) {
  const std::lock_guard lock(mutex_);
  counts_.params_n.observe(n);
  counts_.params_max_tokens.observe(max_tokens);
}

void RequestMetrics::refused(int status) {
  const std::lock_guard lock(mutex_);
  count(status);
}

void RequestMetrics::ended(const AnswerReport& report) {
  const std::lock_guard lock(mutex_);
  count(report.status);
  counts_.reasoning_tokens += report.usage.reasoning_tokens;
}

RequestCounts RequestMetrics::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace replayssm::server
