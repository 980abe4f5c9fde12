#include "bench_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "commit.h"

namespace replayssm::bench {

std::string_view name_of(Op op) {
  switch (op) {
    case Op::decode:
      return "decode";
    case Op::verify:
      return "verify";
    case Op::fold:
      return "fold";
    case Op::prefill:
      return "prefill";
    case Op::conv:
      return "conv";
  }
  return "unknown";
}

std::string_view name_of(LaunchOrder order) {
  switch (order) {
    case LaunchOrder::plain:
      return "plain";
    case LaunchOrder::overlap:
      return "overlap";
    case LaunchOrder::settled:
      return "settled";
  }
  return "unknown";
}

nlohmann::ordered_json to_json(const BenchOptions& o, const BenchReport& r, std::string_view device,
                               int threads) {
  const auto or_null = [](bool applies, auto value) {
    return applies ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
  };
  const bool has_floor = r.floor_us > 0;
  nlohmann::ordered_json json;
  json["op"] = name_of(o.op);
  json["gate"] = o.heads.gate == GateKind::gdn ? "gdn" : "kda";
  json["device"] = device;
  json["batch"] = o.batch;
  json["value_heads"] = o.heads.value_heads;
  json["key_heads"] = o.heads.key_heads;
  json["state_dtype"] = o.state == DType::bf16 ? "bf16" : "fp32";
  json["fold_block"] = o.fold_block;
  json["window"] = or_null(o.op != Op::fold, o.window);
  json["history"] = o.history ? nlohmann::ordered_json(*o.history) : "cycle";
  json["accepted_per_step"] = or_null(o.op == Op::verify, o.accepted_per_step);
  json["threads"] = threads;
  json["time_us"] = r.time_us;
  json["bytes"] = or_null(has_floor, r.bytes);
  json["floor_us"] = or_null(has_floor, r.floor_us);
  json["fraction_of_floor"] = or_null(has_floor, r.floor_us / r.time_us);
  json["packed_time_us"] = or_null(r.packed_time_us.has_value(), r.packed_time_us.value_or(0));
  json["ratio_to_packed"] =
      or_null(r.packed_time_us.has_value(), r.packed_time_us.value_or(0) / r.time_us);
  json["ceiling_copy_gb_per_s"] = r.ceilings.copy_gb_per_s;
  json["ceiling_update_gb_per_s"] = r.ceilings.update_gb_per_s;
  json["ceiling_read_gb_per_s"] = or_null(r.ceilings.read_gb_per_s > 0, r.ceilings.read_gb_per_s);
  json["packed_fraction_of_update"] =
      or_null(r.packed_fraction_of_update.has_value(), r.packed_fraction_of_update.value_or(0));
  json["max_error"] = r.max_error;
  json["commit"] = REPLAYSSM_COMMIT;
  return json;
}

nlohmann::ordered_json to_json(const CudaBenchOptions& o, const CudaBenchReport& r) {
  nlohmann::ordered_json json = to_json(o.op, r.report, "cuda", 0);
  json["threads"] = nullptr;
  if (o.op.op == Op::fold) {
    json["records"] = o.op.records == 0 ? o.op.fold_block : o.op.records;
    json["ring_rows"] = o.ring_rows == 0 ? 2 * o.op.fold_block : o.ring_rows;
    json["layers"] = o.layers;
  }
  json["launch"] = name_of(o.order);
  json["gpu"] = r.gpu;
  const std::time_t now = std::time(nullptr);
  json["date"] = fmt::format("{:%Y-%m-%d}", fmt::gmtime(now));
  return json;
}

std::string to_text(const BenchOptions& o, const BenchReport& r, std::string_view device,
                    int threads) {
  std::string text = fmt::format(
      "{} {} on {}{}: batch {}, heads {}/{}, {} state, fold block {}, window {}\n", name_of(o.op),
      o.heads.gate == GateKind::gdn ? "gdn" : "kda", device,
      threads == 0 ? "" : fmt::format(", {} thread{}", threads, threads == 1 ? "" : "s"), o.batch,
      o.heads.value_heads, o.heads.key_heads, o.state == DType::bf16 ? "bf16" : "fp32",
      o.fold_block, o.window);
  text += fmt::format("  time            {:10.1f} us a layer and step\n", r.time_us);
  if (r.packed_time_us) {
    text += fmt::format("  packed step     {:10.1f} us, {:.2f} times the replay time\n",
                        *r.packed_time_us, *r.packed_time_us / r.time_us);
  }
  if (r.floor_us > 0) {
    text += fmt::format(
        "  bytes           {:10.2f} MB, {:.1f} GB/s, {:.0f} % of the floor ({:.1f} us)\n",
        r.bytes * 1e-6, r.bytes / r.time_us * 1e-3, 100 * r.floor_us / r.time_us, r.floor_us);
  }
  text += fmt::format("  memory          copy {:.1f} GB/s, in-place update {:.1f} GB/s",
                      r.ceilings.copy_gb_per_s, r.ceilings.update_gb_per_s);
  if (r.ceilings.read_gb_per_s > 0) {
    text += fmt::format(", read {:.1f} GB/s", r.ceilings.read_gb_per_s);
  }
  text += "\n";
  if (r.packed_fraction_of_update) {
    text += fmt::format("  packed reaches  {:.0f} % of the update ceiling\n",
                        100 * *r.packed_fraction_of_update);
  }
  text += fmt::format("  checked         {:.1e} relative error against float64\n", r.max_error);
  return text;
}

}  // namespace replayssm::bench
