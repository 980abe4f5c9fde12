// A10. kekzl/imp#1503: a draft that was rejected to its last token left a state that nobody had
// written. A drafter that is always wrong, NaN even, gives the bits of decoding without one, and
// none of its bytes is found in a checkpoint or a pending record.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/backends.h"
#include "ops/variants.h"

namespace replayssm::tests {
namespace {

TEST(A10, ADrafterThatIsAlwaysWrongGivesTheBitsOfDecoding) {
  for (const Backend& backend : backends()) {
    const OwnedOps owned = backend.make(2);
    for (const Variant& v : variants()) {
      const FoldGeometry geometry = FoldGeometry::make(v.block, v.window).value();
      const int count = 3 * v.block;
      const Tokens tokens =
          make_tokens(v.shape, count + v.window, 1, {.bf16_values = v.types.key == DType::bf16});
      LayerMemory plain(*owned.ops, v.shape, geometry, v.types, 1, 1);
      LayerMemory speculative(*owned.ops, v.shape, geometry, v.types, 1, 1);
      plain.admit(0, 0);
      speculative.admit(0, 0);
      for (int i = 0; i < count; ++i) {
        Tokens drafted = tokens;
        const auto first_draft = static_cast<std::size_t>(i + 1);
        for (auto& [values, stride] :
             {std::pair{&drafted.qkv, static_cast<std::size_t>(v.shape.channels())},
              {&drafted.gate, drafted.gate_stride()},
              {&drafted.beta, static_cast<std::size_t>(v.shape.value_heads)}}) {
          std::fill(values->begin() + first_draft * stride, values->end(), std::nanf(""));
        }
        speculative.poison_unread_records(0, 0x7e);
        const auto expected = run_step(plain, Route::window, {{0, &tokens, i, 1}});
        const auto out = run_step(speculative, Route::window, {{0, &drafted, i, v.window, 1}});
        ASSERT_EQ(std::memcmp(out[0].data(), expected[0].data(), expected[0].size() * 4), 0)
            << backend.name << " " << v.name << " at " << i;
      }
      const PausedSequence left = speculative.take(0);
      EXPECT_TRUE(std::all_of(left.state.begin(), left.state.end(),
                              [](float x) { return std::isfinite(x); }));
      EXPECT_EQ(left.records, plain.take(0).records) << backend.name << " " << v.name;
      EXPECT_EQ(speculative.slot_bytes(0), plain.slot_bytes(0)) << backend.name << " " << v.name;
    }
  }
}

}  // namespace
}  // namespace replayssm::tests
