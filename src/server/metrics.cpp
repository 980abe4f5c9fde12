#include "server/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>
#include <sstream>
#include <utility>
#include <vector>

namespace replayssm::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// Families in the order of the calls.
class Families {
 public:
  explicit Families(const std::string& model) : labels_{{"model_name", model}} {}

  void gauge(std::string name, std::string help, double value) {
    ClientMetric metric = labelled();
    metric.gauge.value = value;
    add(std::move(name), std::move(help), MetricType::Gauge, {std::move(metric)});
  }

  void counter(std::string name, std::string help, std::int64_t value) {
    ClientMetric metric = labelled();
    metric.counter.value = static_cast<double>(value);
    add(std::move(name), std::move(help), MetricType::Counter, {std::move(metric)});
  }

  // One counter for each value of a label.
  void counters(std::string name, std::string help, const std::string& label,
                const std::vector<std::pair<std::string, std::int64_t>>& values) {
    std::vector<ClientMetric> metrics;
    for (const auto& [label_value, value] : values) {
      ClientMetric metric = labelled();
      metric.label.push_back({label, label_value});
      metric.counter.value = static_cast<double>(value);
      metrics.push_back(std::move(metric));
    }
    add(std::move(name), std::move(help), MetricType::Counter, std::move(metrics));
  }

  void histogram(std::string name, std::string help, const Histogram& histogram) {
    ClientMetric metric = labelled();
    metric.histogram.sample_count = static_cast<std::uint64_t>(histogram.count());
    metric.histogram.sample_sum = histogram.sum();
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < histogram.counts().size(); ++i) {
      below += static_cast<std::uint64_t>(histogram.counts()[i]);
      const bool rest = i == histogram.upper_bounds().size();
      metric.histogram.bucket.push_back(
          {below, rest ? std::numeric_limits<double>::infinity() : histogram.upper_bounds()[i]});
    }
    add(std::move(name), std::move(help), MetricType::Histogram, {std::move(metric)});
  }

  // A gauge of 1 whose labels are the message.
  void info(std::string name, std::string help,
            const std::vector<std::pair<std::string, std::string>>& labels) {
    ClientMetric metric = labelled();
    for (const auto& [label, value] : labels) metric.label.push_back({label, value});
    metric.gauge.value = 1;
    add(std::move(name), std::move(help), MetricType::Gauge, {std::move(metric)});
  }

  std::string text() const {
    std::ostringstream stream;
    prometheus::TextSerializer().Serialize(stream, families_);
    return stream.str();
  }

 private:
  ClientMetric labelled() const {
    ClientMetric metric;
    metric.label = labels_;
    return metric;
  }

  void add(std::string name, std::string help, MetricType type, std::vector<ClientMetric> metrics) {
    families_.push_back(
        {"replayssm:" + std::move(name), std::move(help), type, std::move(metrics)});
  }

  std::vector<ClientMetric::Label> labels_;
  std::vector<MetricFamily> families_;
};

std::pair<std::string, std::int64_t> by_reason(FinishReason reason,
                                               const EngineCounters& counters) {
  return {std::string(name_of(reason)),
          counters.requests_finished[static_cast<std::size_t>(reason)]};
}

void add_requests(Families& families, const EngineState& state, const RequestCounts& requests) {
  const EngineCounters& counters = state.counters;
  families.gauge("num_requests_running", "Sequences that take part in steps.", state.running);
  families.gauge("num_requests_waiting", "Sequences that have not begun.", state.waiting);
  families.gauge("num_requests_paused", "Sequences that were preempted and wait.", state.paused);
  families.counters(
      "request_success_total", "Finished generations by reason.", "finished_reason",
      {by_reason(FinishReason::stop, counters), by_reason(FinishReason::length, counters),
       by_reason(FinishReason::cancelled, counters), by_reason(FinishReason::error, counters)});
  families.counter("requests_refused_total", "Generations that were not accepted.",
                   counters.requests_refused);
  std::vector<std::pair<std::string, std::int64_t>> statuses;
  for (std::size_t i = 0; i < kCountedStatuses.size(); ++i) {
    const int status = kCountedStatuses[i];
    statuses.emplace_back(status == 0 ? "other" : std::to_string(status), requests.generations[i]);
  }
  families.counters("http_requests_total",
                    "Requests for text work by status; 499: the client went away.", "status",
                    statuses);
  families.counter("num_preemptions_total", "Sequences that were paused for others.",
                   counters.preemptions);
  families.counter("recomputed_tokens_total", "Tokens evaluated again after a preemption.",
                   counters.recomputed_tokens);
  families.counter("reasoning_tokens_total", "Output tokens that were reasoning.",
                   requests.reasoning_tokens);
}

void add_tokens(Families& families, const EngineState& state) {
  const EngineCounters& counters = state.counters;
  families.counter("prompt_tokens_total", "Prompt tokens, reused ones included.",
                   counters.prompt_tokens);
  families.counter("generation_tokens_total", "Output tokens, end tokens included.",
                   counters.generation_tokens);
  families.counter("prefix_cache_queries_total", "Prompt tokens looked up.",
                   counters.prefix_queries);
  families.counter("prefix_cache_hits_total", "Prompt tokens reused.", counters.prefix_hits);
  std::vector<std::pair<std::string, std::int64_t>> lost;
  for (const PrefixLoss loss : kPrefixLosses) {
    lost.emplace_back(name_of(loss), counters.prefix_tokens_lost[static_cast<std::size_t>(loss)]);
  }
  families.counters("prefix_tokens_lost_total",
                    "Prompt tokens that the cache knew and that were evaluated again.", "reason",
                    lost);
  families.counter("nonfinite_logits_total", "Sequences ended by logits that were not finite.",
                   counters.nonfinite_logits);
  families.counter("engine_steps_total", "Steps of the engine.", counters.steps);
}

void add_state(Families& families, const EngineState& state) {
  const EngineCounters& counters = state.counters;
  families.counters("ring_folds_total", "Blocks folded into a state.", "reason",
                    {{"due", counters.folds_due}, {"prefill", counters.folds_prefill}});
  families.histogram("ring_occupancy", "Records pending, at every decode step of every sequence.",
                     counters.ring_occupancy);
  families.gauge("state_slots_used", "Slots that hold a state, or are promised to one.",
                 state.slots.used);
  families.gauge("state_slots_reserved", "Of the used slots: those that wait for a fold.",
                 state.slots_reserved);
  families.gauge("state_slots_total", "Slots of the memory plan.", state.slots.total);
  families.gauge("state_rows_used",
                 "Rows (rings) of running sequences and of cache entries with records.",
                 state.rows.used);
  families.gauge("state_rows_total", "Rows of the memory plan.", state.rows.total);
  families.counter("state_bytes_read_total", "Bytes of recurrent state read.",
                   counters.state_bytes_read);
  families.counter("state_bytes_written_total", "Bytes of recurrent state written.",
                   counters.state_bytes_written);
  families.counter("state_copies_total", "States copied from slot to slot. Stays 0.", kStateCopies);
  families.counters(
      "checkpoint_total", "Cache entries made.", "kind",
      {{"running", counters.checkpoints_running}, {"final", counters.checkpoints_final}});
}

void add_speculation(Families& families, const EngineCounters& counters) {
  using Places = std::vector<std::pair<std::string, std::int64_t>>;
  Places drafts;
  Places accepted;
  for (std::size_t i = 0; i < counters.drafts.size(); ++i) {
    drafts.emplace_back(std::to_string(i), counters.drafts[i]);
    accepted.emplace_back(std::to_string(i), counters.drafts_accepted[i]);
  }
  families.counter("spec_decode_num_drafts_total", "Windows with drafts verified.",
                   counters.verify_windows);
  families.counters("spec_decode_num_draft_tokens_per_pos_total",
                    "Drafts verified, by place in the window.", "position", drafts);
  families.counters("spec_decode_num_accepted_tokens_per_pos_total",
                    "Drafts that became output, by place in the window.", "position", accepted);
}

void add_cache(Families& families, const EngineState& state) {
  const EngineCounters& counters = state.counters;
  const double total = state.pages.total > 0 ? state.pages.total : 1;
  families.gauge("kv_cache_usage_perc", "Used part of the pages of keys and values, 0 to 1.",
                 state.pages.used / total);
  families.gauge("kv_pages_used", "Pages of keys and values in use.", state.pages.used);
  families.gauge("kv_pages_total", "Pages of the memory plan.", state.pages.total);
  families.gauge("prefix_cache_entries", "Entries of the prefix cache.",
                 static_cast<double>(state.cache_entries.size()));
  families.gauge("prefix_cache_host_bytes", "Bytes of entries and sequences in host memory.",
                 static_cast<double>(state.host_cache_bytes));
  families.counter("prefix_cache_evictions_total", "Entries evicted.", counters.entries_evicted);
  families.counter("prefix_cache_demotions_total",
                   "Entries whose row was given up because a later one continues them.",
                   counters.entries_demoted);
  families.counter("prefix_cache_publications_skipped_total",
                   "Entries not made because nothing was free for them.",
                   counters.publications_skipped);
  families.counter("prefix_cache_host_restores_total", "Entries brought back from host memory.",
                   counters.host_restores);
}

void add_times(Families& families, const EngineState& state, const RequestCounts& requests) {
  const EngineCounters& counters = state.counters;
  families.histogram("iteration_tokens_total", "Tokens of a step.", counters.iteration_tokens);
  families.histogram("time_to_first_token_seconds", "From submission to the first token.",
                     counters.time_to_first_token);
  families.histogram("inter_token_latency_seconds", "From one token to the next.",
                     counters.inter_token_latency);
  families.histogram("e2e_request_latency_seconds", "From submission to the end.",
                     counters.end_to_end_latency);
  families.histogram("request_queue_time_seconds", "From submission to the first step.",
                     counters.queue_time);
  families.histogram("request_prefill_time_seconds", "From the first step to the first token.",
                     counters.prefill_time);
  families.histogram("request_decode_time_seconds", "From the first token to the last.",
                     counters.decode_time);
  families.histogram("request_prompt_tokens", "Prompt tokens of a generation.",
                     counters.request_prompt_tokens);
  families.histogram("request_generation_tokens", "Output tokens of a choice.",
                     counters.request_generation_tokens);
  families.histogram("request_params_n", "n of a generation.", requests.params_n);
  families.histogram("request_params_max_tokens", "max_tokens of a generation.",
                     requests.params_max_tokens);
}

}  // namespace

std::string metrics_text(const ServedModel& model, const EngineState& state,
                         const RequestCounts& requests, bool healthy) {
  Families families(model.name);
  families.gauge("engine_healthy", "1 while requests can be served.", healthy ? 1 : 0);
  families.info("cache_config_info", "Sizes of the pools.",
                {{"block_size", std::to_string(model.options.engine.page_tokens)},
                 {"num_gpu_blocks", std::to_string(state.pages.total)},
                 {"num_state_slots", std::to_string(state.slots.total)},
                 {"fold_block", std::to_string(model.options.engine.fold_block)},
                 {"enable_prefix_caching", model.options.prefix_cache ? "True" : "False"}});
  add_requests(families, state, requests);
  add_tokens(families, state);
  add_state(families, state);
  add_speculation(families, state.counters);
  add_cache(families, state);
  add_times(families, state, requests);
  return families.text();
}

std::optional<ApiError> metrics(const std::shared_ptr<ApiContext>& context, const HttpRequest&,
                                const std::shared_ptr<Exchange>& exchange) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  const bool healthy = !context->engine.failure() && !context->draining;
  response.body =
      metrics_text(context->model, context->engine.state(), context->metrics.counts(), healthy);
  exchange->respond(std::move(response));
  return std::nullopt;
}

}  // namespace replayssm::server
