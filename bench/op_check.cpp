#include "op_check.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "layer_set.h"

namespace replayssm::bench {
namespace {

// One pass from depth 0; returns all outputs, and the final states where the op folds.
Result<std::vector<double>> outputs_of(const BenchOptions& o, const FoldGeometry& geometry,
                                       LinearOps& ops) {
  SetOptions set_options{o.heads, geometry, o.state, DType::bf16, std::min(o.batch, 2), 1, 11};
  set_options.tokens_per_row = o.op == Op::prefill ? o.window : std::max(o.window, 1);
  std::vector<double> all;
  const int steps = o.op == Op::prefill ? 2 : 2 * o.fold_block + 3;
  LayerSet set(set_options, ops);
  std::vector<RowTokens> rows;
  std::vector<int> accepted;
  const int tokens = o.op == Op::decode || o.op == Op::fold ? 1 : o.window;
  const Phase phase = o.op == Op::prefill ? Phase::prefill : Phase::decode;
  for (int row = 0; row < set_options.rows; ++row) {
    rows.push_back({RowIndex{row}, row * tokens, tokens, phase});
    accepted.push_back(0);
  }
  for (int step = 0; step < steps; ++step) {
    const StepArgs args = set.step(rows);
    if (o.op == Op::conv) {
      REPLAYSSM_TRY(ops.conv_window(set.conv(rows)));
      all.insert(all.end(), set.conv_outputs().begin(), set.conv_outputs().end());
    } else {
      REPLAYSSM_TRY(o.op == Op::prefill ? ops.chunk_prefill(args) : ops.window_step(args));
      all.insert(all.end(), set.outputs().begin(), set.outputs().end());
    }
    for (std::size_t i = 0; i < accepted.size(); ++i) {
      accepted[i] = phase == Phase::prefill ? tokens : 1 + (step + static_cast<int>(i)) % tokens;
    }
    REPLAYSSM_TRY(ops.advance({geometry, Recurrence::replay, set.cursors(), rows, accepted}));
  }
  if (o.op == Op::fold) {
    // Everything pending into a buffer: the state itself is the output.
    const StateView states = set.states();
    const RingView rings = set.rings();
    std::vector<float> buffer(o.heads.state_elements());
    for (const RowTokens& row : rows) {
      const auto r = static_cast<std::size_t>(row.row.value);
      const CursorView cursors = set.cursors();
      const FoldRow fold_row{row.row,
                             cursors.checkpoint[r],
                             cursors.committed[r] - cursors.checkpoint[r],
                             cursors.base[r],
                             kNullSlot,
                             buffer};
      REPLAYSSM_TRY(ops.fold({o.heads, geometry, {&states, 1}, {&rings, 1}, {&fold_row, 1}}));
      all.insert(all.end(), buffer.begin(), buffer.end());
    }
  }
  return all;
}

}  // namespace

Result<double> check_op(const BenchOptions& options, LinearOps& ops) {
  const int window = options.op == Op::verify || options.op == Op::conv ? options.window : 1;
  const auto geometry = FoldGeometry::make(options.fold_block, window, kCpuRingAccess);
  if (!geometry) return geometry.error();
  const auto reference = make_reference_ops();
  auto got = outputs_of(options, *geometry, ops);
  if (!got) return got.error();
  auto want = outputs_of(options, *geometry, *reference);
  if (!want) return want.error();
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < want->size(); ++i) {
    difference += std::pow((*got)[i] - (*want)[i], 2);
    norm += std::pow((*want)[i], 2);
  }
  return std::sqrt(difference / norm);
}

}  // namespace replayssm::bench
