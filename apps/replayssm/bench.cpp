// replayssm bench: how fast one operation of one linear layer is on this machine, and how far from
// the fewest bytes it could move. Whole models and servers: bench_engine.cpp, bench_serve.cpp.
#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <string>

#include "bench_engine.h"
#include "bench_report.h"
#include "bench_serve.h"
#include "command.h"
#include "engine_flags.h"
#include "op_bench.h"
#include "terminal.h"

namespace replayssm::cli {
namespace {

struct BenchFlags {
  bench::BenchOptions options;
  std::string device = "cpu";
  std::string gate = "gdn";
  std::string state = "fp32";
  std::string history = "cycle";
  std::string launch = "settled";
  int layers = 1;
  int ring_rows = 0;
  int threads = 0;
  std::string cpu_isa = "auto";
  bool json = false;
};

Result<std::optional<int>> parse_history(const std::string& text) {
  if (text == "cycle") return std::optional<int>{};
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 0) {
    return refuse("--history", text, "a number of live records, or cycle");
  }
  return std::optional<int>{number};
}

// What only the other device can do is refused, not ignored.
Status check_device(const BenchFlags& flags) {
  if (flags.device == "cuda") {
    if (flags.threads != 0) return refuse("--threads", flags.threads, "0 with --device cuda");
    if (flags.cpu_isa != "auto") {
      return refuse("--cpu-isa", flags.cpu_isa, "auto with --device cuda");
    }
    return {};
  }
  if (flags.launch != "settled") return refuse("--launch", flags.launch, "--device cuda with it");
  if (flags.layers != 1) return refuse("--layers", flags.layers, "1 with --device cpu");
  if (flags.ring_rows != 0) return refuse("--ring-rows", flags.ring_rows, "0 with --device cpu");
  return {};
}

int run_on_cuda(const BenchFlags& flags) {
  bench::CudaBenchOptions options;
  options.op = flags.options;
  // As on the cpu: for a fold, the history is what is folded.
  if (options.op.op == bench::Op::fold && options.op.history) {
    options.op.records = *options.op.history;
  }
  options.layers = flags.layers;
  options.ring_rows = flags.ring_rows;
  for (const auto order : {bench::LaunchOrder::plain, bench::LaunchOrder::overlap}) {
    if (flags.launch == bench::name_of(order)) options.order = order;
  }
  const auto report = bench::run_cuda_bench(options);
  if (!report) {
    return fail(report.error());
  }
  if (flags.json) {
    fmt::print("{}\n", bench::to_json(options, *report).dump());
  } else {
    fmt::print("{}", bench::to_text(options.op, report->report, report->gpu, 0));
  }
  return kSuccess;
}

int run(BenchFlags& flags) {
  const auto history = parse_history(flags.history);
  if (!history) {
    print_error(history.error().message);
    return kBadFlags;
  }
  flags.options.history = *history;
  flags.options.heads.gate = flags.gate == "kda" ? GateKind::kda : GateKind::gdn;
  flags.options.state = flags.state == "bf16" ? DType::bf16 : DType::f32;
  if (const Status device = check_device(flags); !device.ok()) {
    print_error(device.error().message);
    return kBadFlags;
  }
  const bench::BenchOptions& op = flags.options;
  if (op.op == bench::Op::verify && op.window > op.fold_block) {
    return fail(refuse("--window", op.window,
                       fmt::format("at most the --fold-block of {}", op.fold_block)));
  }
  if (op.op == bench::Op::fold && op.history == 0) {
    return fail(refuse("--history", flags.history, "at least 1 record, or cycle"));
  }
  if (flags.device == "cuda") return run_on_cuda(flags);
  ThreadPool pool(flags.threads);
  const auto ops = make_cpu_ops(pool);
  const auto report = bench::run_bench(flags.options, *ops, pool);
  if (!report) {
    return fail(report.error());
  }
  if (flags.json) {
    fmt::print("{}\n", bench::to_json(flags.options, *report, flags.device, pool.threads()).dump());
  } else {
    fmt::print("{}", bench::to_text(flags.options, *report, ops->name(), pool.threads()));
  }
  return kSuccess;
}

void add_op(CLI::App& parent, bench::Op op, const std::string& help, int& exit_code) {
  auto flags = std::make_shared<BenchFlags>();
  flags->options.op = op;
  if (op == bench::Op::verify) flags->options.window = 4;
  if (op == bench::Op::prefill) flags->options.window = 512;
  bench::BenchOptions& options = flags->options;
  CLI::App* command = parent.add_subcommand(std::string(bench::name_of(op)), help);
  command->add_option("--device", flags->device, "Where the operation runs")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--gate", flags->gate, "gdn: one gate a head; kda: one a key channel")
      ->check(CLI::IsMember({"gdn", "kda"}))
      ->capture_default_str();
  command->add_option("--batch", options.batch, "Rows")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command
      ->add_option("--value-heads", options.heads.value_heads,
                   "Value heads, a multiple of the key heads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--key-heads", options.heads.key_heads, "Key heads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--state-dtype", flags->state, "Number format of states and records")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  command->add_option("--fold-block", options.fold_block, "L: tokens folded together")
      ->check(CLI::IsMember({8, 16, 32}))
      ->capture_default_str();
  // Every operation takes the same options, so that one script can drive them all.
  command
      ->add_option("--window", options.window,
                   op == bench::Op::prefill ? "Tokens of a chunk"
                   : op == bench::Op::conv  ? "Tokens a step; above 16, on cuda only, of a chunk"
                   : op == bench::Op::decode || op == bench::Op::fold
                       ? "1: this operation has one token a step"
                       : "Tokens a step")
      ->check(CLI::Range(1, op == bench::Op::prefill || op == bench::Op::conv
                                ? 1 << 20
                                : FoldGeometry::kLargestWindow))
      ->capture_default_str();
  command
      ->add_option("--history", flags->history,
                   op == bench::Op::fold
                       ? "Records folded, or cycle: a whole block"
                       : "Live records before the step, or cycle: every ring phase, weighted "
                         "equally")
      ->capture_default_str();
  command
      ->add_option("--accepted-per-step", options.accepted_per_step,
                   op == bench::Op::verify ? "Mean of the tokens that a step commits"
                                           : "Used by verify only")
      ->capture_default_str();
  if (op == bench::Op::fold) {
    command->add_option("--records", options.records, "Records folded; 0 is a whole block")
        ->capture_default_str();
  }
  if (op == bench::Op::fold || op == bench::Op::decode || op == bench::Op::verify) {
    command
        ->add_option("--launch", flags->launch,
                     "cuda: after the end of the launch before (plain), overlapping its end "
                     "(overlap), or fetching states and records while it still runs (settled)")
        ->check(CLI::IsMember({"plain", "overlap", "settled"}))
        ->capture_default_str();
  }
  if (op == bench::Op::fold) {
    command->add_option("--layers", flags->layers, "cuda: layers in one launch")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    command
        ->add_option("--ring-rows", flags->ring_rows,
                     "cuda: rows of the ring, a power of two; 0 is twice the fold block")
        ->check(CLI::Range(0, 1 << 20))
        ->capture_default_str();
  }
  command->add_option("--threads", flags->threads, "0: one for each core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  add_cpu_isa(*command, flags->cpu_isa);
  command->add_flag("--json", flags->json, "One JSON object instead of text");
  command->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "bench",
      "Time one operation of one layer, checked against float64 first; a whole model; or a server");
  command->require_subcommand(1);
  add_op(*command, bench::Op::decode, "One token a row, beside the packed step", exit_code);
  add_op(*command, bench::Op::verify, "A window of drafts a row, some of them accepted", exit_code);
  add_op(*command, bench::Op::fold, "Records into states", exit_code);
  add_op(*command, bench::Op::prefill, "A chunk of prompt a row, beside the packed step",
         exit_code);
  add_op(*command, bench::Op::conv, "The causal convolution of a window", exit_code);
  add_bench_engine(*command, exit_code);
  add_bench_serve(*command, exit_code);
  command->footer(
      "Example: replayssm bench decode --batch 64 --gate gdn --state-dtype fp32 --json");
}

}  // namespace replayssm::cli
