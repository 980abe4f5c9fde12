#include "server/health.h"

#include <fmt/format.h>

namespace replayssm::server {
namespace {

std::optional<ApiError> unable(const ApiContext& context) {
  if (const auto failure = context.engine.failure()) {
    return unavailable(fmt::format("the engine has failed: {}", failure->message));
  }
  if (context.draining) return unavailable("the server is about to end and takes no new requests");
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> health(const std::shared_ptr<ApiContext>& context, const HttpRequest&,
                               const std::shared_ptr<Exchange>& exchange) {
  if (auto error = unable(*context)) return error;
  exchange->respond(json_response({{"status", "ok"}}));
  return std::nullopt;
}

std::optional<ApiError> health_generate(const std::shared_ptr<ApiContext>& context,
                                        const HttpRequest&,
                                        const std::shared_ptr<Exchange>& exchange) {
  if (auto error = unable(*context)) return error;
  GenerationRequest request;
  request.prompt = context->frontend.tokenizer().encode("Hello");
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  const auto handler = [exchange](const GenerationEvent& event) {
    const auto* ended = std::get_if<ChoiceFinished>(&event);
    if (ended == nullptr) return;
    const bool good = ended->reason == FinishReason::length || ended->reason == FinishReason::stop;
    HttpResponse response =
        good ? json_response({{"status", "ok"}, {"generated_tokens", ended->completion_tokens}})
             : error_response(unavailable(ended->error ? ended->error->message
                                                       : "the generation was cancelled"));
    exchange->post([exchange, response] { exchange->respond(response); });
  };
  const auto submitted = context->engine.submit(std::move(request), handler);
  if (const auto* refusal = std::get_if<Refusal>(&submitted)) return from_refusal(*refusal);
  return std::nullopt;
}

std::optional<ApiError> flush_cache(const std::shared_ptr<ApiContext>& context, const HttpRequest&,
                                    const std::shared_ptr<Exchange>& exchange) {
  const int dropped = context->engine.flush_cache();
  exchange->post([exchange, dropped] {
    exchange->respond(json_response({{"flushed_entries", dropped}}));
  });
  return std::nullopt;
}

}  // namespace replayssm::server
