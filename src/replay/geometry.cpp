#include "replay/geometry.h"

#include <algorithm>
#include <bit>

namespace replayssm {

Result<FoldGeometry> FoldGeometry::make(int fold_block, int window_max, RingAccess access) {
  if (fold_block != 1 && fold_block != 8 && fold_block != 16 && fold_block != 32) {
    return refuse("--linear-replayssm-cache-len", fold_block, "8, 16 or 32");
  }
  const int limit = std::min(fold_block, kLargestWindow);
  if (window_max < 1 || window_max > limit) {
    return refuse("--speculative-num-draft-tokens", window_max,
                  fmt::format("1 to {} with a fold block of {}", limit, fold_block));
  }
  const int appended = access == RingAccess::shared ? 2 * window_max : window_max;
  const auto rows = static_cast<unsigned>(fold_block + appended - 1);
  return FoldGeometry(fold_block, window_max, static_cast<int>(std::bit_ceil(rows)));
}

}  // namespace replayssm
