#include "op_bench.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "byte_floor.h"
#include "layer_set.h"
#include "op_check.h"
#include "stopwatch.h"

namespace replayssm::bench {
namespace {

// Several independent layers, so that a pass over all of them does not fit the last-level cache,
// and so many that their rows spread evenly over the phases of a ring cycle.
class RotatingSets {
 public:
  RotatingSets(const SetOptions& options, const LinearOps& ops, std::size_t cache_bytes)
      : options_(options) {
    const std::size_t one = static_cast<std::size_t>(options.rows) *
                            options.heads.state_elements() * size_of(options.state);
    const auto block = static_cast<std::size_t>(options.geometry.fold_block());
    const std::size_t even = block / std::gcd(block, static_cast<std::size_t>(options.rows));
    const std::size_t wanted = 2 * cache_bytes / std::max<std::size_t>(one, 1) + 1;
    sets_.resize((std::min<std::size_t>(wanted, 1024) + even - 1) / even * even);
    const std::size_t bytes = LayerSet::bytes_of(options, ops);
    memory_ = AlignedBuffer<std::byte>(sets_.size() * bytes);
    all_cores_for_each([&](std::size_t i) {
      SetOptions own = options;
      own.seed = options.seed + i;
      sets_[i] = std::make_unique<LayerSet>(own, ops, memory_.data() + i * bytes);
    });
  }

  // Places every row at cursor_of(its number over all sets).
  template <class CursorOf>
  void place(CursorOf&& cursor_of) {
    const auto rows = static_cast<std::size_t>(options_.rows);
    all_cores_for_each([&](std::size_t i) {
      for (std::size_t row = 0; row < rows; ++row) {
        sets_[i]->place(row, cursor_of(static_cast<int>(i * rows + row)));
      }
    });
  }

  std::vector<std::unique_ptr<LayerSet>>& sets() { return sets_; }
  double count() const { return static_cast<double>(sets_.size()); }

 private:
  // Memory is filled by all cores, whatever number of threads is timed.
  template <class Fill>
  void all_cores_for_each(Fill&& fill) {
    ThreadPool all;
    all.parallel_for(sets_.size(), [&](std::size_t i, int) { fill(i); });
  }

  SetOptions options_;
  AlignedBuffer<std::byte> memory_;
  std::vector<std::unique_ptr<LayerSet>> sets_;
};

// How often something is timed.
struct Repeats {
  int steps;  // of a sample
  int least;  // samples
  int most;   // samples: multiples of `least` up to here while they take less than three seconds
};

struct Times {
  double own_us = 0;     // a step of the operation
  double packed_us = 0;  // the packed step beside it
};

struct Timer {
  const BenchOptions& options;
  FoldGeometry geometry;
  LinearOps& ops;
  RotatingSets& sets;
  std::vector<RowTokens> rows;
  std::vector<int> accepted;
  Status failure;

  void note(Status status) {
    if (failure.ok() && !status.ok()) failure = status;
  }

  // Microseconds a step and set: medians over samples of some steps over every set. With
  // `beside_packed`, the packed step takes its turn after each step of the operation, so that both
  // meet the same clock rate and the same neighbours on the machine. Cursors move between timings:
  // an engine moves them once for all layers.
  template <class Step>
  Times cycle(const Repeats& repeats, bool moves, bool beside_packed, Step&& step) {
    const int steps = repeats.steps;
    std::vector<double> own, packed;
    double spent_us = 0;
    for (int pass = 0; pass <= repeats.most; ++pass) {
      if (pass > repeats.least && pass % repeats.least == 1 && spent_us > 3e6) break;
      double own_us = 0, packed_us = 0;
      for (int i = 0; i < steps; ++i) {
        own_us += elapsed_us([&] {
          for (auto& set : sets.sets()) note(step(*set));
        });
        if (moves) {
          accept(i);
          for (auto& set : sets.sets()) {
            note(ops.advance({geometry, Recurrence::replay, set->cursors(), rows, accepted}));
          }
        }
        if (!beside_packed) continue;
        packed_us += elapsed_us([&] {
          for (auto& set : sets.sets()) note(ops.packed_step(set->step(rows)));
        });
      }
      if (pass == 0) continue;  // warms up
      own.push_back(own_us);
      packed.push_back(packed_us);
      spent_us += own_us + packed_us;
    }
    const double calls = steps * sets.count();
    return {median(own) / calls, median(packed) / calls};
  }

  // Whole numbers whose mean over time is accepted_per_step.
  void accept(int step) {
    for (std::size_t i = 0; i < accepted.size(); ++i) {
      const double mean = options.op == Op::verify ? options.accepted_per_step
                                                   : static_cast<double>(rows[i].tokens);
      const double before = std::floor((step + static_cast<int>(i)) * mean + 1e-9);
      const double after = std::floor((step + static_cast<int>(i) + 1) * mean + 1e-9);
      accepted[i] = std::clamp(static_cast<int>(after - before), 1, rows[i].tokens);
    }
  }
};

Status check(const BenchOptions& o) {
  REPLAYSSM_TRY(replayssm::check(o.heads));
  if (o.batch < 1 || o.batch > 4096) return refuse("--batch", o.batch, "1 to 4096");
  if (o.window < 1) return refuse("--window", o.window, "at least 1");
  if ((o.op == Op::decode || o.op == Op::fold) && o.window != 1) {
    return refuse("--window", o.window, "1 in decode and fold");
  }
  if (o.op == Op::verify && !(o.accepted_per_step >= 1 && o.accepted_per_step <= o.window)) {
    return refuse("--accepted-per-step", o.accepted_per_step, fmt::format("1 to {}", o.window));
  }
  return {};
}

// Rows at rest, one block into their life, staggered over the phases p = 1 .. L.
Cursor staggered(int row, int block) {
  return {Depth{block + 1 + (row * 5) % block}, Depth{block}};
}

}  // namespace

double error_limit(DType state) { return state == DType::bf16 ? 1e-2 : 1e-6; }

Result<BenchReport> run_bench(const BenchOptions& o, LinearOps& ops, ThreadPool& pool) {
  REPLAYSSM_TRY(check(o));
  const bool windows = o.op == Op::verify || o.op == Op::conv;
  const auto geometry = FoldGeometry::make(o.fold_block, windows ? o.window : 1, kCpuRingAccess);
  if (!geometry) return geometry.error();
  const int history_max = geometry->pending_max();
  if (o.history && (*o.history < 0 || *o.history > history_max)) {
    return refuse("--history", *o.history, fmt::format("0 to {}, or cycle", history_max));
  }
  BenchReport report;
  const auto error = check_op(o, ops);
  if (!error) return error.error();
  report.max_error = *error;
  if (!(report.max_error <= error_limit(o.state))) {
    return Error{
        fmt::format("the output differs from float64 by {:.2e}, more than {:.0e}: no time "
                    "is reported",
                    report.max_error, error_limit(o.state))};
  }

  const std::size_t cache = last_level_cache_bytes();
  report.ceilings = measure_ceilings(pool, 2 * cache);
  SetOptions set_options{o.heads, *geometry, o.state, DType::bf16, o.batch, o.window, 1};
  RotatingSets sets(set_options, ops, cache);
  Timer timer{o, *geometry, ops, sets, {}, std::vector<int>(static_cast<std::size_t>(o.batch)), {}};
  const Phase phase = o.op == Op::prefill  ? Phase::prefill
                      : o.op == Op::verify ? Phase::verify
                                           : Phase::decode;
  for (int row = 0; row < o.batch; ++row) {
    timer.rows.push_back({RowIndex{row}, row * o.window, o.window, phase});
  }
  const FloorShape floor{o.heads, o.state};
  const double batch = o.batch;
  const auto at_rest = [&](int row) { return staggered(row, o.fold_block); };
  const auto fixed = [&](int) {
    return Cursor{Depth{o.fold_block + o.history.value_or(0)}, Depth{o.fold_block}};
  };
  if (o.history) {
    sets.place(fixed);
  } else {
    sets.place(at_rest);
  }
  const bool cycle = !o.history.has_value();
  const int steps = cycle ? o.fold_block : 4;
  const Repeats passes{steps, o.passes, o.passes};
  // Each phase of the ring counts alike in every decode step over all sets: a step is a sample, and
  // there are one or more whole cycles of them.
  const Repeats decode_passes{1, steps, o.passes * steps};
  const bool with_packed = o.op == Op::decode || o.op == Op::verify || o.op == Op::prefill;
  Times times;
  switch (o.op) {
    case Op::decode:
    case Op::verify: {
      times = timer.cycle(o.op == Op::decode ? decode_passes : passes, cycle, with_packed,
                          [&](LayerSet& set) { return ops.window_step(set.step(timer.rows)); });
      const double live = o.history ? *o.history : (o.fold_block + 1) / 2.0;
      report.bytes = o.op == Op::decode && cycle
                         ? decode_bytes(floor, batch, o.fold_block)
                         : verify_bytes(floor, batch, o.fold_block, o.window, live,
                                        cycle ? o.accepted_per_step : 0);
      break;
    }
    case Op::fold: {
      const int records = o.records == 0 ? o.history.value_or(o.fold_block) : o.records;
      if (records < 1 || records > geometry->ring_rows()) {
        return refuse("--records", records, fmt::format("1 to {}", geometry->ring_rows()));
      }
      times = timer.cycle({4, o.passes, o.passes}, false, false, [&](LayerSet& set) -> Status {
        const StateView states = set.states();
        const RingView rings = set.rings();
        std::vector<FoldRow> rows;
        for (int row = 0; row < o.batch; ++row) {
          rows.push_back(
              {RowIndex{row}, Depth{o.fold_block}, records, SlotId{row}, SlotId{row}, {}});
        }
        return ops.fold({o.heads, *geometry, {&states, 1}, {&rings, 1}, rows});
      });
      report.bytes = fold_bytes(floor, batch, 1, records);
      break;
    }
    case Op::prefill: {
      times = timer.cycle({2, o.passes, o.passes}, true, with_packed,
                          [&](LayerSet& set) { return ops.chunk_prefill(set.step(timer.rows)); });
      break;
    }
    case Op::conv: {
      times = timer.cycle(passes, true, false,
                          [&](LayerSet& set) { return ops.conv_window(set.conv(timer.rows)); });
      report.bytes = conv_bytes(o.heads, batch, o.window, geometry->conv_rows());
      break;
    }
  }
  report.ceilings = higher(report.ceilings, measure_ceilings(pool, 2 * cache));
  report.time_us = times.own_us;
  if (with_packed) report.packed_time_us = times.packed_us;
  if (o.op == Op::decode) {
    report.packed_fraction_of_update =
        packed_bytes(floor, batch) / times.packed_us * 1e-3 / report.ceilings.update_gb_per_s;
  }
  if (!timer.failure.ok()) return timer.failure.error();
  report.floor_us = report.bytes / report.ceilings.copy_gb_per_s * 1e-3;
  return report;
}

}  // namespace replayssm::bench
