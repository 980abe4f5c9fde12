#include "server/api_error.h"

#include <fmt/format.h>

#include <utility>

namespace replayssm::server {
namespace {

// Seconds after which a client that found the queue full, or the process draining, may come again.
constexpr int kRetrySoon = 1;
constexpr int kRetryElsewhere = 5;

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

Json body_of(const ApiError& error) {
  return {{"error",
           {{"message", error.message},
            {"type", error.type},
            {"param", text_or_null(error.param)},
            {"code", text_or_null(error.code)}}}};
}

ApiError invalid_field(std::string_view param, std::string message) {
  ApiError error;
  error.message = std::move(message);
  error.param = param;
  return error;
}

ApiError invalid_field(const Error& error) {
  return invalid_field(error.message.substr(0, error.message.find(':')), error.message);
}

ApiError invalid_body(std::string_view what) {
  ApiError error;
  error.message = fmt::format("the body: {}", what);
  return error;
}

ApiError unknown_path(std::string_view path) {
  ApiError error;
  error.status = 404;
  error.message = fmt::format("there is nothing at {}", path);
  error.code = "unknown_path";
  return error;
}

ApiError wrong_method(std::string_view method, std::string_view path) {
  ApiError error;
  error.status = 405;
  error.message = fmt::format("{} is not a method of {}", method, path);
  error.code = "method_not_allowed";
  return error;
}

ApiError not_implemented(std::string_view what) {
  ApiError error;
  error.status = 501;
  error.message = fmt::format("{} is not implemented", what);
  error.type = "not_implemented_error";
  error.code = "not_implemented";
  return error;
}

ApiError unknown_model(std::string_view asked, std::string_view served) {
  ApiError error;
  error.status = 404;
  error.message = fmt::format("model: {} is not served here; expected {}", asked, served);
  error.param = "model";
  error.code = "model_not_found";
  return error;
}

ApiError context_exceeded(int prompt_tokens, int max_tokens, int context_length) {
  ApiError error;
  error.message =
      max_tokens == 0
          ? fmt::format(
                "the prompt has {} tokens; the context of {} must leave room for at least "
                "one more",
                prompt_tokens, context_length)
          : fmt::format(
                "max_tokens: {} is not accepted; expected at most {}, what the context of "
                "{} leaves after a prompt of {} tokens",
                max_tokens, context_length - prompt_tokens, context_length, prompt_tokens);
  error.param = max_tokens == 0 ? "" : "max_tokens";
  error.code = "context_length_exceeded";
  return error;
}

ApiError unavailable(std::string message) {
  ApiError error;
  error.status = 503;
  error.message = std::move(message);
  error.type = "service_unavailable_error";
  error.code = "unavailable";
  error.retry_after = kRetryElsewhere;
  return error;
}

ApiError internal_error(std::string message) {
  ApiError error;
  error.status = 500;
  error.message = std::move(message);
  error.type = "server_error";
  error.code = "internal_error";
  return error;
}

ApiError from_refusal(const Refusal& refusal) {
  switch (refusal.kind) {
    case Refusal::Kind::invalid:
      return invalid_field(refusal.field, refusal.message);
    case Refusal::Kind::too_long: {
      ApiError error = invalid_field(refusal.field, refusal.message);
      error.code = "context_length_exceeded";
      return error;
    }
    case Refusal::Kind::queue_full: {
      ApiError error;
      error.status = 429;
      error.message = refusal.message;
      error.type = "rate_limit_error";
      error.code = "queue_full";
      error.retry_after = kRetrySoon;
      return error;
    }
    case Refusal::Kind::draining:
    case Refusal::Kind::failed:
      return unavailable(refusal.message);
  }
  return internal_error(refusal.message);
}

}  // namespace replayssm::server
