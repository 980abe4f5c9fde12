// The HTTP interface without sockets: a request in, an answer through its exchange.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "server/answer.h"
#include "server/frontend.h"
#include "server/generation_engine.h"
#include "server/http.h"
#include "server/request_metrics.h"
#include "server/served_model.h"

namespace replayssm::server {

struct ApiOptions {
  std::string api_key;         // empty: none is asked for
  std::string allowed_origin;  // of pages served elsewhere; "*": any; empty: none
};

// What the endpoints share. Engine and frontend outlive it.
struct ApiContext {
  GenerationEngine& engine;
  const Frontend& frontend;
  ServedModel model;
  ApiOptions options;
  RequestMetrics metrics{};
  std::atomic<bool> draining{false};
};

// All members may be called from any thread.
class Api {
 public:
  // Runs text work (templates, tokenizing, grammars) away from the threads that serve sockets.
  using TextWork = std::function<void(std::function<void()>)>;

  Api(GenerationEngine& engine, const Frontend& frontend, ServedModel model, ApiOptions options,
      TextWork text_work);

  // Called in the exchange's sequence.
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);

  // From now on generations are refused and /health says 503.
  void drain();
  const ApiContext& context() const { return *context_; }

 private:
  bool authorized(const HttpRequest& request) const;

  std::shared_ptr<ApiContext> context_;
  TextWork text_work_;
};

// Hands a generation to the engine: in the exchange's sequence, with log line and metrics at its
// end.
void start_answer(const std::shared_ptr<ApiContext>& context, const HttpRequest& request,
                  std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerFormat> format,
                  const StreamOptions& stream, std::vector<Job> jobs);

// The part of a job that chat and text completions have in common. Errors: sampling values,
// context_length_exceeded.
std::optional<ApiError> prepare(const ApiContext& context, const GenerationFields& fields,
                                std::vector<TokenId> prompt, Job& job);

// An error that names the first id outside of the vocabulary, and the field.
std::optional<ApiError> check_token_ids(const ApiContext& context, std::string_view field,
                                        std::span<const TokenId> ids);

// An error unless `asked` is empty or the served name.
std::optional<ApiError> check_model(const ApiContext& context, const std::string& asked);

}  // namespace replayssm::server
