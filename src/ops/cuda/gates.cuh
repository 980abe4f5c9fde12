// Gate and beta of one token's head, or of one of its channels; see GateArgs.
#pragma once

#include "ops/cuda/numbers.cuh"
#include "ops/cuda/step_args.h"

namespace replayssm::cuda {

// Element `i` of the gates [tokens][HV][gate width].
__device__ inline void gate_element(const GateArgs& args, int64_t i) {
  const int64_t in_token = i % (static_cast<int64_t>(args.value_heads) * args.gate_width);
  const int64_t head = in_token / args.gate_width;
  args.gate[i] = log_gate(args.a[i], args.a_log[head], args.dt_bias[in_token], args.lower_bound);
  if (i % args.gate_width == 0)
    args.beta[i / args.gate_width] = beta_of(args.b[i / args.gate_width]);
}

}  // namespace replayssm::cuda
