#include "ops/reference/head_memory.h"
#include "ops/reference/ops.h"

namespace replayssm::reference {

void packed_step(const StepArgs& args) {
  for (const RowTokens& row : args.rows) {
    const SlotId base = args.cursors.base[row.row.value];
    if (base == kNullSlot) {
      zero_outputs(args, row);
      continue;
    }
    for (int head = 0; head < args.shape.value_heads; ++head) {
      HeadState state = args.cursors.committed[row.row.value].tokens == 0
                            ? zero_state()
                            : load(args.shape, args.states, base, head);
      for (int i = 0; i < row.tokens; ++i) {
        const int token = row.first_token + i;
        float* out = args.out +
                     (static_cast<std::size_t>(token) * args.shape.value_heads + head) * kValueDim;
        step(state, token_of(args, token, head, DType::f32), out);
      }
      store(args.shape, args.states, args.cursors.home[row.row.value], head, state);
    }
  }
}

}  // namespace replayssm::reference
