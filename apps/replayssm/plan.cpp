// replayssm plan: what memory a model needs for how many requests, from its config.json alone.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "command.h"
#include "engine/engine_service.h"
#include "engine/memory_needs.h"
#include "engine_flags.h"
#include "table.h"
#include "terminal.h"

namespace replayssm::cli {
namespace {

struct PlanFlags {
  EngineFlags engine;
  std::string memory;
  int max_running_requests = 0;
  int context_length = 0;
  int page_tokens = 16;
  int step_tokens = 256;
  bool disable_radix_cache = false;
  bool json = false;
};

struct Planned {
  ModelConfig config;
  SequenceLayout layout;
  SequencePlan plan;
  int most_requests = 0;  // planned where no number is asked for
  DType activations = DType::f32;
};

// The numbers that Engine::create would come to, without weights. `asked`: with speculation
// resolved.
Result<Planned> make_plan(const PlanFlags& flags, const EngineOptions& asked, std::int64_t budget,
                          const FoldGeometry& geometry) {
  auto config = load_config(asked.model_path);
  if (!config) return config.error();
  ModelOptions options;
  options.activations = activation_type(asked, *config);
  options.recurrence = asked.recurrence;
  options.geometry = geometry;
  options.deterministic = asked.deterministic;
  options.max_step_tokens = flags.step_tokens;
  options.draft_head = asked.speculation.algorithm == SpeculativeAlgorithm::mtp;
  options.host_embeddings = drafts_on_host(asked);
  const auto drafter = load_drafter_config(asked, *config);
  if (!drafter) return drafter.error();
  const BlockDraftConfig* block = *drafter ? &**drafter : nullptr;
  const SequenceLayout layout =
      sequence_layout(*config, options, asked.state_type, flags.page_tokens, block);

  ServiceOptions service;
  service.engine = asked;
  service.engine.memory_budget = budget;
  service.engine.max_running_requests = flags.max_running_requests;
  service.engine.context_length = flags.context_length;
  service.engine.page_tokens = flags.page_tokens;
  service.engine.step_tokens = flags.step_tokens;
  service.prefix_cache = !flags.disable_radix_cache;
  if (asked.device == DeviceKind::cuda) config->weight_type = DType::bf16;
  const Float8 float8 = float8_on(asked.device);
  const std::int64_t weights = planned_weight_bytes(*config, false, float8);
  const std::int64_t drafter_weights =
      block != nullptr ? planned_weight_bytes(*block)
                       : planned_weight_bytes(*config, options.draft_head, float8) - weights;
  const int threads = asked.threads > 0 ? asked.threads : available_cores();
  auto plan = plan_engine(service_engine_options(service), *config, options, layout,
                          {weights, drafter_weights}, block, threads);
  if (!plan) return plan.error();
  return Planned{std::move(*config), layout, std::move(*plan), max_useful_requests(service.engine),
                 options.activations};
}

void print_table(const PlanFlags& flags, const Planned& planned) {
  const MemoryPlan& plan = planned.plan.memory;
  const SequenceLayout& layout = planned.layout;
  std::vector<std::vector<std::string>> rows;
  for (const MemoryLine& line : plan.lines) {
    rows.push_back({line.name, format_bytes(line.bytes), line.note});
  }
  rows.push_back({"sum", format_bytes(plan.used), fmt::format("{} bytes", plan.used)});
  rows.push_back({"budget", format_bytes(plan.budget), ""});
  fmt::print("{}\n", format_table({"memory", "bytes", "how"}, rows, {1}));
  const std::string tokens = layout.page_bytes() == 0
                                 ? "any number of"
                                 : fmt::format("{}", std::int64_t{plan.pages} * layout.page_tokens);
  fmt::print("{} request{} at once, {} tokens in all, one request up to {} of the model's {}\n",
             plan.rows, plan.rows == 1 ? "" : "s", tokens, planned.plan.context_length,
             planned.config.max_positions);
  if (flags.max_running_requests == 0 && plan.rows == planned.most_requests) {
    fmt::print(
        "more may fit: without --max-running-requests not more than {} are planned, so that a step "
        "of {} tokens has room for all\n",
        planned.most_requests, flags.step_tokens);
  }
  fmt::print("state {}, activations {}, bytes a slot {}\n", name_of(layout.state_type),
             name_of(planned.activations), layout.slot_bytes());
  const int window = layout.geometry.window_max();
  if (window > 1) {
    const std::int64_t rings = layout.ring_bytes_per_row() + layout.conv_ring_bytes_per_row();
    const std::int64_t snapshots = window * layout.slot_bytes();
    fmt::print(
        "speculation: rings of {} a request instead of {} state snapshots of {} ({:.1f} %)\n",
        format_bytes(rings), window, format_bytes(snapshots),
        100.0 * static_cast<double>(rings) / static_cast<double>(snapshots));
  }
}

void print_json(const Planned& planned) {
  const MemoryPlan& plan = planned.plan.memory;
  nlohmann::ordered_json json;
  for (const MemoryLine& line : plan.lines) json["bytes"][line.name] = line.bytes;
  json["used"] = plan.used;
  json["budget"] = plan.budget;
  json["max_running_requests"] = plan.rows;
  json["kept_sequences"] = plan.kept_rows;
  json["slots"] = plan.slots;
  json["pages"] = plan.pages;
  json["page_size"] = planned.layout.page_tokens;
  json["context_length"] = planned.plan.context_length;
  json["bytes_per_slot"] = planned.layout.slot_bytes();
  json["ring_bytes_per_request"] = planned.layout.ring_bytes_per_row();
  json["conv_ring_bytes_per_request"] = planned.layout.conv_ring_bytes_per_row();
  json["kv_bytes_per_token"] = planned.layout.kv_bytes_per_token();
  fmt::print("{}\n", json.dump());
}

int plan(const PlanFlags& flags) {
  const auto budget = parse_bytes("--memory", flags.memory);
  if (!budget) return fail(budget.error(), kBadFlags);
  auto asked = flags.engine.options();
  if (!asked) return fail(asked.error());
  const auto options = resolve_speculation(std::move(*asked));
  if (!options) return fail(options.error(), kBadFlags);
  const auto geometry =
      FoldGeometry::make(options->fold_block, options->window_max, ring_access(options->device));
  if (!geometry) return fail(geometry.error(), kBadFlags);
  if (const Status device = check_device(*options); !device.ok()) {
    return fail(device.error(), kBadFlags);
  }
  EngineOptions sized = *options;
  sized.max_running_requests = flags.max_running_requests;
  sized.step_tokens = flags.step_tokens;
  if (const Status room = check_step_room(sized); !room.ok()) return fail(room.error(), kBadFlags);
  const auto planned = make_plan(flags, *options, *budget, *geometry);
  if (!planned) return fail(planned.error());
  if (flags.json) {
    print_json(*planned);
  } else {
    print_table(flags, *planned);
  }
  return kSuccess;
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* command = app.add_subcommand(
      "plan",
      "What memory serve would put where and how many requests fit; reads config.json only");
  command->add_option("--memory", flags->memory, "Budget, for example 24GiB or 512MiB")->required();
  command
      ->add_option("--max-running-requests", flags->max_running_requests,
                   "Requests at once; 0 is as many as fit, at most 256")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--context-length", flags->context_length,
                   "Tokens of the longest request. Default: the model's, or what fits")
      ->check(CLI::Range(1, 1 << 30));
  command->add_option("--page-size", flags->page_tokens, "Tokens of a page of keys and values")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--chunked-prefill-size", flags->step_tokens, "The most tokens of a step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_flag("--disable-radix-cache", flags->disable_radix_cache,
                    "Without room for the prefix cache that serve keeps");
  flags->engine.add_to(*command);
  flags->engine.add_speculation_to(*command);
  command->add_flag("--json", flags->json, "One JSON object instead of the table");
  command->footer("Example: replayssm plan --model-path DIR --memory 24GiB");
  command->callback([flags, &exit_code] {
    // Of a number of draft tokens alone it is not known who makes them: the head is planned for.
    if (flags->engine.speculative_algorithm.empty() && flags->engine.draft_tokens > 1) {
      flags->engine.speculative_algorithm = "EAGLE";
    } else if (flags->engine.speculative_algorithm.empty()) {
      flags->engine.draft_tokens = 0;
    }
    exit_code = plan(*flags);
  });
}

}  // namespace replayssm::cli
