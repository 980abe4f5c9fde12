// POST /tokenize, /detokenize, /apply-template; GET /tokenizer_info.
#pragma once

#include "server/api.h"

namespace replayssm::server {

// {"prompt"} or {"messages", "tools", ..} to {"tokens", "count", "max_model_len"}. A prompt is
// ordinary text unless parse_special is true.
std::optional<ApiError> tokenize(const std::shared_ptr<ApiContext>& context,
                                 const HttpRequest& request,
                                 const std::shared_ptr<Exchange>& exchange);

// {"tokens"} to {"prompt"}.
std::optional<ApiError> detokenize(const std::shared_ptr<ApiContext>& context,
                                   const HttpRequest& request,
                                   const std::shared_ptr<Exchange>& exchange);

// A chat request to {"prompt"}, the text that the model would read.
std::optional<ApiError> apply_template(const std::shared_ptr<ApiContext>& context,
                                       const HttpRequest& request,
                                       const std::shared_ptr<Exchange>& exchange);

std::optional<ApiError> tokenizer_info(const std::shared_ptr<ApiContext>& context,
                                       const HttpRequest& request,
                                       const std::shared_ptr<Exchange>& exchange);

}  // namespace replayssm::server
