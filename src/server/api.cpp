#include "server/api.h"

#include <strings.h>

#include <fmt/format.h>

#include <exception>
#include <string_view>
#include <utility>

#include "server/log.h"
#include "server/routes.h"

namespace replayssm::server {
namespace {

// Takes as long for a wrong key as for a right one, so that time does not tell how much is right.
bool same_key(std::string_view given, std::string_view expected) {
  unsigned difference = given.size() == expected.size() ? 0 : 1;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const char other = i < given.size() ? given[i] : '\0';
    difference |= static_cast<unsigned char>(expected[i] ^ other);
  }
  return difference == 0;
}

void log_request(const HttpRequest& request, int status, std::string_view what) {
  log(LogLevel::info, "{} {} {} {}: {}", request.request_id, request.method, request.path, status,
      what);
}

void log_answer(const AnswerReport& report) {
  const AnswerUsage& usage = report.usage;
  log(LogLevel::info,
      "{} {} {}: {}; prompt {} tokens, {} cached, {} lost{}; output {} tokens; waited {:.3f} s, "
      "prefill {:.3f} s, decode {:.3f} s, in all {:.3f} s",
      report.request_id, report.id, report.status, report.finish, usage.prompt_tokens,
      usage.cached_tokens, usage.lost_tokens,
      usage.lost_reason ? fmt::format(" ({})", name_of(*usage.lost_reason)) : "",
      usage.completion_tokens, report.timings.waiting, report.timings.prefill,
      report.timings.decode, report.seconds);
}

// What runs the handler must not end the process, whatever it is given.
std::optional<ApiError> run(const Route& route, const std::shared_ptr<ApiContext>& context,
                            const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  try {
    return route.handler(context, request, exchange);
  } catch (const std::exception& error) {
    return internal_error(error.what());
  }
}

ApiError unauthorized() {
  ApiError error;
  error.status = 401;
  error.message = "the API key is missing or wrong; expected the header Authorization: Bearer KEY";
  error.type = "authentication_error";
  error.code = "invalid_api_key";
  return error;
}

}  // namespace

Api::Api(GenerationEngine& engine, const Frontend& frontend, ServedModel model, ApiOptions options,
         TextWork text_work)
    : context_(new ApiContext{engine, frontend, std::move(model), std::move(options)}),
      text_work_(std::move(text_work)) {}

void Api::drain() {
  context_->draining = true;
  context_->engine.drain();
}

bool Api::authorized(const HttpRequest& request) const {
  const std::string& key = context_->options.api_key;
  constexpr std::string_view kScheme = "bearer ";  // in any case (RFC 9110, 11.1)
  const std::string_view given = request.authorization;
  return key.empty() || (given.size() > kScheme.size() &&
                         strncasecmp(given.data(), kScheme.data(), kScheme.size()) == 0 &&
                         same_key(given.substr(kScheme.size()), key));
}

void Api::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  const RouteMatch match = find_route(request.method, request.path);
  const auto refuse_with = [&](const ApiError& error, const std::string& allow = "") {
    log_request(request, error.status, error.message);
    HttpResponse response = error_response(error);
    if (!allow.empty()) response.headers.emplace_back("Allow", allow);
    exchange->respond(std::move(response));
  };
  if (request.method == "OPTIONS" && !match.allowed.empty()) {
    HttpResponse response;
    response.status = 204;
    response.headers.emplace_back("Allow", match.allowed + ", OPTIONS");
    return exchange->respond(std::move(response));
  }
  if (match.allowed.empty()) return refuse_with(unknown_path(request.path));
  if (match.route == nullptr) {
    return refuse_with(wrong_method(request.method, request.path), match.allowed);
  }
  const Route& route = *match.route;
  if (route.access == Route::Access::key && !authorized(request)) {
    return refuse_with(unauthorized());
  }
  if (route.work == Route::Work::quick) {
    if (const auto error = run(route, context_, request, exchange)) refuse_with(*error);
    return;
  }
  text_work_([&route, context = context_, request = std::move(request),
              exchange = std::move(exchange)] {
    std::optional<ApiError> error;
    try {
      error = run(route, context, request, exchange);
    } catch (const std::exception& exception) {  // no memory
      error = internal_error(exception.what());
    }
    if (!error) return;
    context->metrics.refused(error->status);
    log_request(request, error->status, error->message);
    exchange->post([exchange, response = error_response(*error)] { exchange->respond(response); });
  });
}

void start_answer(const std::shared_ptr<ApiContext>& context, const HttpRequest& request,
                  std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerFormat> format,
                  const StreamOptions& stream, std::vector<Job> jobs) {
  for (const Job& job : jobs) {
    context->metrics.submitted(job.request.choices, job.request.max_tokens);
  }
  auto answer = std::make_shared<Answer>(context->engine, context->frontend.tokenizer(), exchange,
                                         std::move(format), stream, std::move(jobs),
                                         request.request_id, [context](const AnswerReport& report) {
                                           context->metrics.ended(report);
                                           log_answer(report);
                                         });
  exchange->post([answer = std::move(answer)] { answer->start(); });
}

std::optional<ApiError> prepare(const ApiContext& context, const GenerationFields& fields,
                                std::vector<TokenId> prompt, Job& job) {
  if (context.draining) return unavailable("the server is about to end and takes no new requests");
  if (prompt.empty()) {
    return invalid_field("prompt", refuse("prompt", "no token", "at least one token").message);
  }
  if (auto error = check_token_ids(context, "stop_token_ids", fields.stop_token_ids)) return error;
  for (const auto& [token, bias] : fields.logit_bias) {
    if (auto error = check_token_ids(context, "logit_bias", {&token, 1})) return error;
  }
  const int length = static_cast<int>(prompt.size());
  const int context_length = context.engine.context_length();
  if (length >= context_length) return context_exceeded(length, 0, context_length);
  const int room = context_length - length;
  if (fields.max_tokens.value_or(0) > room) {
    return context_exceeded(length, *fields.max_tokens, context_length);
  }
  auto sampling = context.frontend.resolve(fields.sampling);
  if (auto* error = std::get_if<ApiError>(&sampling)) return std::move(*error);

  GenerationRequest& request = job.request;
  request.prompt = std::move(prompt);
  request.sampling = std::get<SamplingParams>(sampling);
  request.choices = fields.n;
  request.max_tokens = std::max(fields.max_tokens.value_or(room), 1);
  request.min_tokens = fields.min_tokens;
  request.ignore_eos = fields.ignore_eos;
  request.stop_token_ids = fields.stop_token_ids;
  request.logit_bias = fields.logit_bias;
  request.priority = fields.priority;
  job.text.stop = fields.stop;
  job.text.min_tokens = fields.min_tokens;
  job.text.include_stop_text = fields.include_stop_text;
  job.text.skip_special_tokens = fields.skip_special_tokens;
  const auto tail = std::min<std::size_t>(request.prompt.size(), kMostCharacterTokens);
  job.text.prompt_tail.assign(request.prompt.end() - static_cast<std::ptrdiff_t>(tail),
                              request.prompt.end());
  return std::nullopt;
}

std::optional<ApiError> check_token_ids(const ApiContext& context, std::string_view field,
                                        std::span<const TokenId> ids) {
  const int size = context.frontend.tokenizer().size();
  for (const TokenId id : ids) {
    if (id >= 0 && id < size) continue;
    return invalid_field(field,
                         refuse(field, id, fmt::format("token ids, 0 to {}", size - 1)).message);
  }
  return std::nullopt;
}

std::optional<ApiError> check_model(const ApiContext& context, const std::string& asked) {
  if (asked.empty() || asked == context.model.name) return std::nullopt;
  return unknown_model(asked, context.model.name);
}

}  // namespace replayssm::server
