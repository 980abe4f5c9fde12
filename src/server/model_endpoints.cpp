#include "server/model_endpoints.h"

#include <string_view>

namespace replayssm::server {
namespace {

Json model_json(const ServedModel& model) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "replayssm"},
          {"root", model.path.string()},
          {"parent", Json()},
          {"max_model_len", model.context_length}};
}

// "%2F" to "/": names of models have slashes, and some clients encode them.
std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape =
        text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0;
    decoded += escape ? static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])) : text[i];
    if (escape) i += 2;
  }
  return decoded;
}

}  // namespace

std::optional<ApiError> list_models(const std::shared_ptr<ApiContext>& context, const HttpRequest&,
                                    const std::shared_ptr<Exchange>& exchange) {
  exchange->respond(
      json_response({{"object", "list"}, {"data", Json::array({model_json(context->model)})}}));
  return std::nullopt;
}

std::optional<ApiError> get_model(const std::shared_ptr<ApiContext>& context,
                                  const HttpRequest& request,
                                  const std::shared_ptr<Exchange>& exchange) {
  constexpr std::string_view kFront = "/v1/models/";
  const std::string asked = percent_decoded(std::string_view(request.path).substr(kFront.size()));
  if (auto error = check_model(*context, asked)) return error;
  exchange->respond(json_response(model_json(context->model)));
  return std::nullopt;
}

std::optional<ApiError> server_info(const std::shared_ptr<ApiContext>& context, const HttpRequest&,
                                    const std::shared_ptr<Exchange>& exchange) {
  const ServedModel& model = context->model;
  const ServiceOptions& options = model.options;
  const EngineOptions& engine = options.engine;
  const EngineState now = context->engine.state();
  const bool replay = engine.recurrence == Recurrence::replay;
  Json info = {
      {"version", REPLAYSSM_VERSION},
      {"model_path", model.path.string()},
      {"served_model_name", model.name},
      {"context_length", model.context_length},
      {"max_running_requests", model.plan.rows},
      {"max_queued_requests",
       options.max_queued_requests ? Json(*options.max_queued_requests) : Json()},
      {"chunked_prefill_size", engine.step_tokens},
      {"page_size", engine.page_tokens},
      {"mamba_ssm_dtype", name_of(engine.state_type)},
      {"mamba_track_interval", options.track_interval},
      {"disable_radix_cache", !options.prefix_cache},
      {"enable_linear_replayssm", replay},
      {"linear_replayssm_cache_len", engine.fold_block},
      {"speculative_algorithm", name_of(engine.speculation.algorithm)},
      {"schedule_policy", options.policy == SchedulePolicy::priority ? "priority" : "fcfs"},
      {"tool_call_parser", context->frontend.tool_call_parser()},
      {"reasoning_parser", context->frontend.reasoning_parser()},
      {"deterministic", engine.deterministic},
      {"threads", model.threads}};
  Json internal = {{"running", now.running}, {"waiting", now.waiting}, {"paused", now.paused}};
  info["internal_states"] = Json::array({std::move(internal)});
  exchange->respond(json_response(info));
  return std::nullopt;
}

std::optional<ApiError> version(const std::shared_ptr<ApiContext>&, const HttpRequest&,
                                const std::shared_ptr<Exchange>& exchange) {
  exchange->respond(json_response({{"version", REPLAYSSM_VERSION}}));
  return std::nullopt;
}

}  // namespace replayssm::server
