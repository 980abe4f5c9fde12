#include "server/state.h"

namespace replayssm::server {
namespace {

Json model_facts_json(const ServedModel& model) {
  const ModelConfig& config = model.config;
  return {{"id", model.name},
          {"type", config.model_type},
          {"layers",
           {{"linear", config.count(LayerKind::linear)},
            {"attention", config.count(LayerKind::attention)}}},
          {"vocab_size", config.vocab_size},
          {"context_length", model.context_length}};
}

// Of one sequence over all layers: what a fold writes, and what a write per token would write.
std::size_t state_bytes(const ServedModel& model) {
  return static_cast<std::size_t>(model.config.count(LayerKind::linear)) *
         model.config.linear.state_elements() * size_of(model.options.engine.state_type);
}

Json replay_json(const ServedModel& model) {
  const ServiceOptions& options = model.options;
  const EngineOptions& engine = options.engine;
  return {{"enabled", engine.recurrence == Recurrence::replay},
          {"fold_block", engine.fold_block},
          {"state_dtype", name_of(engine.state_type)},
          {"state_bytes", state_bytes(model)},
          {"deterministic", engine.deterministic},
          {"prefix_cache", options.prefix_cache},
          {"track_interval", options.track_interval}};
}

Json plan_json(const ServedModel& model) {
  const MemoryPlan& plan = model.plan;
  Json lines = Json::array();
  for (const MemoryLine& line : plan.lines) {
    lines.push_back({{"name", line.name}, {"bytes", line.bytes}, {"note", line.note}});
  }
  return {{"lines", std::move(lines)},
          {"used", plan.used},
          {"budget", plan.budget},
          {"requests", plan.rows},
          {"slots", plan.slots},
          {"pages", plan.pages},
          {"page_tokens", model.options.engine.page_tokens}};
}

Json sequence_json(const SequenceState& sequence) {
  return {{"id", sequence.generation.value},
          {"choice", sequence.choice},
          {"phase", name_of(sequence.phase)},
          {"prompt_tokens", sequence.prompt_tokens},
          {"cached_tokens", sequence.cached_tokens},
          {"output_tokens", sequence.output_tokens},
          {"committed", sequence.committed},
          {"checkpoint", sequence.checkpoint},
          {"pending", sequence.pending()},
          {"last_fold", sequence.last_fold},
          {"slot", sequence.base.value < 0 ? Json() : Json(sequence.base.value)},
          {"slot_shared", sequence.base_shared}};
}

Json pool_json(const PoolState& pool) { return {{"used", pool.used}, {"total", pool.total}}; }

Json cache_json(const EngineState& state) {
  Json entries = Json::array();
  for (const CacheEntryState& entry : state.cache_entries) {
    entries.push_back({{"depth", entry.depth},
                       {"checkpoint", entry.checkpoint},
                       {"with_records", entry.with_records},
                       {"on_host", entry.on_host}});
  }
  return {{"entries", std::move(entries)}, {"host_bytes", state.host_cache_bytes}};
}

Json counters_json(const EngineCounters& counters) {
  Json lost = Json::object();
  for (const PrefixLoss loss : kPrefixLosses) {
    lost[std::string(name_of(loss))] = counters.prefix_tokens_lost[static_cast<std::size_t>(loss)];
  }
  return {{"steps", counters.steps},
          {"prompt_tokens", counters.prompt_tokens},
          {"generation_tokens", counters.generation_tokens},
          {"decode_rows", counters.ring_occupancy.count()},
          {"requests_refused", counters.requests_refused},
          {"preemptions", counters.preemptions},
          {"recomputed_tokens", counters.recomputed_tokens},
          {"prefix_queries", counters.prefix_queries},
          {"prefix_hits", counters.prefix_hits},
          {"prefix_tokens_lost", std::move(lost)},
          {"entries_evicted", counters.entries_evicted},
          {"entries_demoted", counters.entries_demoted},
          {"publications_skipped", counters.publications_skipped},
          {"host_restores", counters.host_restores},
          {"folds", {{"due", counters.folds_due}, {"prefill", counters.folds_prefill}}},
          {"checkpoints",
           {{"running", counters.checkpoints_running}, {"final", counters.checkpoints_final}}},
          {"state_bytes_read", counters.state_bytes_read},
          {"state_bytes_written", counters.state_bytes_written},
          {"speculation",
           {{"windows", counters.verify_windows},
            {"drafts", counters.drafts},
            {"drafts_accepted", counters.drafts_accepted}}}};
}

}  // namespace

Json state_json(const ServedModel& model, const EngineState& state) {
  Json sequences = Json::array();
  for (const SequenceState& sequence : state.sequences) {
    sequences.push_back(sequence_json(sequence));
  }
  Json slots = pool_json(state.slots);
  slots["reserved"] = state.slots_reserved;
  return {{"model", model_facts_json(model)},  {"replay", replay_json(model)},
          {"memory_plan", plan_json(model)},   {"running", state.running},
          {"waiting", state.waiting},          {"paused", state.paused},
          {"sequences", std::move(sequences)}, {"rows", pool_json(state.rows)},
          {"slots", std::move(slots)},         {"pages", pool_json(state.pages)},
          {"cache", cache_json(state)},        {"counters", counters_json(state.counters)}};
}

std::optional<ApiError> state(const std::shared_ptr<ApiContext>& context, const HttpRequest&,
                              const std::shared_ptr<Exchange>& exchange) {
  exchange->respond(json_response(state_json(context->model, context->engine.state())));
  return std::nullopt;
}

}  // namespace replayssm::server
