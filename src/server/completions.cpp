#include "server/completions.h"

#include <utility>

#include "server/completion_format.h"
#include "server/completion_request.h"
#include "server/generate_format.h"
#include "server/generate_request.h"
#include "text/detokenizer.h"

namespace replayssm::server {
namespace {

// A text is ordinary text, whatever it spells: control tokens come as ids, or with parse_special.
CompletionFormat::Prompt tokenize_prompt(const Tokenizer& tokenizer,
                                         CompletionRequest::Prompt& prompt, bool parse_special) {
  CompletionFormat::Prompt result;
  if (auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) {
    result.tokens = std::move(*ids);
    // A character that is not complete belongs to the output.
    Detokenizer detokenizer(tokenizer, false);
    for (const TokenId token : result.tokens) result.text += detokenizer.push(token);
  } else {
    result.text = std::get<std::string>(std::move(prompt));
    result.tokens = parse_special ? tokenizer.encode_with_added_tokens(result.text)
                                  : tokenizer.encode(result.text);
  }
  return result;
}

}  // namespace

std::optional<ApiError> completions(const std::shared_ptr<ApiContext>& context,
                                    const HttpRequest& http,
                                    const std::shared_ptr<Exchange>& exchange) {
  const auto body = parse_json(http.body);
  if (!body) return invalid_body(body.error().message);
  CompletionRequest request;
  if (auto error = parse_completion_request(*body, request)) return error;
  if (auto error = check_model(*context, request.generation.model)) return error;

  const Tokenizer& tokenizer = context->frontend.tokenizer();
  std::vector<Job> jobs(request.prompts.size());
  std::vector<CompletionFormat::Prompt> echo;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    Job& job = jobs[i];
    auto prompt = tokenize_prompt(tokenizer, request.prompts[i], request.parse_special);
    if (request.echo) echo.push_back(prompt);
    job.prompt_only = request.generation.max_tokens == 0;
    if (auto error = prepare(*context, request.generation, std::move(prompt.tokens), job)) {
      return error;
    }
    job.request.top_logprobs = request.top_logprobs;
    job.request.prompt_logprobs = request.echo && request.top_logprobs.has_value();
  }
  auto format = std::make_unique<CompletionFormat>(tokenizer, context->model.name,
                                                   request.top_logprobs.has_value(),
                                                   std::move(echo), request.generation.n);
  start_answer(context, http, exchange, std::move(format), request.generation.stream,
               std::move(jobs));
  return std::nullopt;
}

std::optional<ApiError> generate(const std::shared_ptr<ApiContext>& context,
                                 const HttpRequest& http,
                                 const std::shared_ptr<Exchange>& exchange) {
  const auto body = parse_json(http.body);
  if (!body) return invalid_body(body.error().message);
  GenerateRequest request;
  if (auto error = parse_generate_request(*body, request)) return error;
  if (auto error = check_model(*context, request.generation.model)) return error;

  const Tokenizer& tokenizer = context->frontend.tokenizer();
  std::vector<Job> jobs(request.prompts.size());
  std::vector<int> prompt_tokens;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    auto prompt = tokenize_prompt(tokenizer, request.prompts[i], false);
    prompt_tokens.push_back(static_cast<int>(prompt.tokens.size()));
    if (prompt.tokens.empty()) {
      return invalid_field("text", refuse("text", "no token", "at least one token").message);
    }
    if (auto error = prepare(*context, request.generation, std::move(prompt.tokens), jobs[i])) {
      return error;
    }
    jobs[i].request.top_logprobs = request.top_logprobs;
  }
  auto format = std::make_unique<GenerateFormat>(
      tokenizer, std::move(prompt_tokens),
      GenerateFormat::Options{request.generation.n, request.batch, request.top_logprobs.has_value(),
                              request.text_in_logprobs});
  start_answer(context, http, exchange, std::move(format), request.generation.stream,
               std::move(jobs));
  return std::nullopt;
}

}  // namespace replayssm::server
