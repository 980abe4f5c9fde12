// Outputs of packed_step, window_step and chunk_prefill against float64.
#include <gtest/gtest.h>

#include "ops/backends.h"
#include "ops/layer_memory.h"
#include "ops/oracle.h"

namespace replayssm::tests {
namespace {

class Recurrence64 : public testing::TestWithParam<Backend> {};

INSTANTIATE_TEST_SUITE_P(Backends, Recurrence64, testing::ValuesIn(all_backends()),
                         [](const auto& test) { return test.param.name; });

FoldGeometry geometry(const Backend& backend, int block, int window) {
  return FoldGeometry::make(block, std::min(window, backend.window_max), backend.ring_access)
      .value();
}

Tokens tokens_for(const Backend& backend, const HeadShape& shape, int count, std::uint32_t seed) {
  return make_tokens(shape, count, seed, {.bf16_values = backend.bf16_activations});
}

std::vector<HeadShape> shapes() {
  return {{GateKind::gdn, 2, 2}, {GateKind::gdn, 1, 2}, {GateKind::gdn, 1, 3},
          {GateKind::gdn, 1, 4}, {GateKind::gdn, 1, 8}, {GateKind::kda, 2, 2},
          {GateKind::kda, 1, 2}};
}

// Evaluates `tokens` in steps of the sizes given, repeated, as far as the backend has steps of that
// size; the outputs of all.
std::vector<float> evaluate(const Backend& backend, LayerMemory& memory, Route route,
                            const Tokens& tokens, const std::vector<int>& sizes) {
  std::vector<float> outputs;
  memory.admit(0, 0);
  std::size_t turn = 0;
  for (int done = 0; done < tokens.count;) {
    const int size = sizes[turn++ % sizes.size()];
    const int most = std::min(size, route == Route::packed   ? backend.packed_max
                                    : route == Route::window ? backend.window_max
                                                             : size);
    const int count = std::min(most, tokens.count - done);
    const auto out = run_step(memory, route, {{0, &tokens, done, count}});
    outputs.insert(outputs.end(), out[0].begin(), out[0].end());
    done += count;
  }
  return outputs;
}

TEST_P(Recurrence64, PackedStepMatchesTheTokenByTokenRecurrence) {
  const OwnedOps owned = GetParam().make(2);
  REPLAYSSM_NEEDS_BACKEND(owned);
  for (const HeadShape& shape : shapes()) {
    const Tokens tokens = tokens_for(GetParam(), shape, 70, 1);
    LayerMemory memory(owned, shape, geometry(GetParam(), 16, 1), {}, 1, 1);
    const auto out = evaluate(GetParam(), memory, Route::packed, tokens, {1, 3, 66});
    EXPECT_LT(relative_error(out, oracle(tokens)), GetParam().tolerance) << shape.value_heads;
  }
}

TEST_P(Recurrence64, WindowsMatchTheTokenByTokenRecurrence) {
  const OwnedOps owned = GetParam().make(2);
  REPLAYSSM_NEEDS_BACKEND(owned);
  for (const HeadShape& shape : shapes()) {
    const Tokens tokens = tokens_for(GetParam(), shape, 100, 2);
    for (int block : {8, 16, 32}) {
      LayerMemory memory(owned, shape, geometry(GetParam(), block, 8), {}, 1, 1);
      const auto out = evaluate(GetParam(), memory, Route::window, tokens, {1, 8, 3, 1, 1, 7});
      EXPECT_LT(relative_error(out, oracle(tokens)), GetParam().tolerance)
          << shape.value_heads << " heads, block " << block;
    }
  }
}

TEST_P(Recurrence64, ChunksMatchTheTokenByTokenRecurrence) {
  const OwnedOps owned = GetParam().make(2);
  REPLAYSSM_NEEDS_BACKEND(owned);
  for (const HeadShape& shape : shapes()) {
    const Tokens tokens = tokens_for(GetParam(), shape, 230, 3);
    LayerMemory memory(owned, shape, geometry(GetParam(), 16, 4), {}, 1, 1);
    const auto out = evaluate(GetParam(), memory, Route::chunk, tokens, {17, 1, 130, 15, 16, 32});
    EXPECT_LT(relative_error(out, oracle(tokens)), GetParam().tolerance) << shape.value_heads;
  }
}

}  // namespace
}  // namespace replayssm::tests
