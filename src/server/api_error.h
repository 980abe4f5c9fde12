// An error as a client sees it: a status and {"error": {message, type, param, code}}.
#pragma once

#include <string>
#include <string_view>

#include "engine/generation.h"
#include "server/json.h"

namespace replayssm::server {

struct ApiError {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param;    // the field; empty: null
  std::string code;     // empty: null
  int retry_after = 0;  // seconds, as the header Retry-After; 0: none
};

// {"error": {...}}
Json body_of(const ApiError& error);

// 400 for the field `param`.
ApiError invalid_field(std::string_view param, std::string message);
// The same from an error "FIELD: ..." of the engine or the sampler, which names the field first.
ApiError invalid_field(const Error& error);
// 400 for a body that cannot be read at all.
ApiError invalid_body(std::string_view what);
// 404 for a path, 405 for a method, 501 for what is known and not built.
ApiError unknown_path(std::string_view path);
ApiError wrong_method(std::string_view method, std::string_view path);
ApiError not_implemented(std::string_view what);
// 404 for a model that is not served.
ApiError unknown_model(std::string_view asked, std::string_view served);
// 400, code context_length_exceeded. `max_tokens` 0: the prompt alone is too long.
ApiError context_exceeded(int prompt_tokens, int max_tokens, int context_length);
// 503 with Retry-After.
ApiError unavailable(std::string message);
ApiError internal_error(std::string message);

// What the engine's refusal means to a client: 400, 429, 503.
ApiError from_refusal(const Refusal& refusal);

}  // namespace replayssm::server
