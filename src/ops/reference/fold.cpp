#include <algorithm>

#include "ops/reference/head_memory.h"
#include "ops/reference/ops.h"

namespace replayssm::reference {

void fold(const FoldArgs& args) {
  for (const FoldRow& row : args.rows) {
    if (row.source == kNullSlot) continue;
    for (std::size_t layer = 0; layer < args.states.size(); ++layer) {
      for (int head = 0; head < args.shape.value_heads; ++head) {
        HeadState state = row.from.tokens == 0
                              ? zero_state()
                              : load(args.shape, args.states[layer], row.source, head);
        for (int i = 0; i < row.records; ++i) {
          add_record(state, record_of(args.shape, args.geometry, args.rings[layer], row.row,
                                      row.from + i, head));
        }
        if (row.buffer.empty()) {
          store(args.shape, args.states[layer], row.destination, head, state);
          continue;
        }
        float* out = row.buffer.data() + layer * args.shape.state_elements() +
                     static_cast<std::size_t>(head) * kValueDim * kKeyDim;
        std::transform(state.begin(), state.end(), out,
                       [](double x) { return static_cast<float>(x); });
      }
    }
  }
}

}  // namespace replayssm::reference
