#include "server/chat_completions.h"

#include <fmt/format.h>

#include "server/chat_format.h"
#include "server/forced_calls.h"

namespace replayssm::server {
namespace {

// What the grammar holds the answer to, and how calls are read from it.
struct CallPlan {
  OutputFormat format;
  ChoiceTextOptions::Calls calls = ChoiceTextOptions::Calls::none;
};

std::variant<CallPlan, ApiError> plan_calls(const ChatRequest& request, const Frontend& frontend) {
  CallPlan plan;
  plan.format = request.format;
  if (request.tools.is_null() || request.tool_choice == ToolChoice::none) return plan;
  if (frontend.tool_call_parser() == "none") {
    return invalid_field("tools",
                         "tools: the model's chat template knows no tools, and no "
                         "--tool-call-parser was given");
  }
  switch (request.tool_choice) {
    case ToolChoice::named:
      plan.calls = ChoiceTextOptions::Calls::named;
      plan.format = named_call_format(request.tools, request.tool_name);
      break;
    case ToolChoice::required:
      plan.calls = ChoiceTextOptions::Calls::json_array;
      plan.format = required_call_format(request.tools, request.parallel_tool_calls);
      break;
    default:
      plan.calls = ChoiceTextOptions::Calls::parsed;
  }
  return plan;
}

std::optional<ApiError> make_job(const ApiContext& context, const ChatRequest& request, Job& job) {
  const Frontend& frontend = context.frontend;
  auto calls = plan_calls(request, frontend);
  if (auto* error = std::get_if<ApiError>(&calls)) return std::move(*error);
  const auto& plan = std::get<CallPlan>(calls);
  auto rendered = frontend.render(request);
  if (auto* error = std::get_if<ApiError>(&rendered)) return std::move(*error);
  auto& prompt = std::get<ChatPrompt>(rendered);
  auto constraint = plan.calls == ChoiceTextOptions::Calls::parsed
                        ? frontend.constrain_calls(request.tools, prompt.opens_reasoning)
                        : frontend.constrain(plan.format, prompt.opens_reasoning);
  if (auto* error = std::get_if<ApiError>(&constraint)) return std::move(*error);

  if (auto error = prepare(context, request.generation, std::move(prompt.tokens), job)) {
    return error;
  }
  job.request.branch_points = std::move(prompt.branch_points);
  job.request.constraint = std::get<Frontend::Constraint>(std::move(constraint));
  job.request.top_logprobs = request.top_logprobs;
  if (frontend.reasoning_parser() != "none") {
    job.text.reasoning = prompt.opens_reasoning ? ReasoningParser::Start::in_reasoning
                                                : ReasoningParser::Start::in_content;
  }
  // A stop string inside forced arguments would leave half a document.
  if (plan.calls == ChoiceTextOptions::Calls::named ||
      plan.calls == ChoiceTextOptions::Calls::json_array) {
    job.text.stop.clear();
  }
  job.text.calls = plan.calls;
  job.text.call_format = frontend.tool_call_parser();
  job.text.call_name = request.tool_name;
  job.text.tools = request.tools;
  job.text.one_call = !request.parallel_tool_calls;
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> chat_completions(const std::shared_ptr<ApiContext>& context,
                                         const HttpRequest& http,
                                         const std::shared_ptr<Exchange>& exchange) {
  const auto body = parse_json(http.body);
  if (!body) return invalid_body(body.error().message);
  ChatRequest request;
  if (auto error = parse_chat_request(*body, request)) return error;
  if (auto error = check_model(*context, request.generation.model)) return error;
  std::vector<Job> jobs(1);
  if (auto error = make_job(*context, request, jobs[0])) return error;
  auto format = std::make_unique<ChatFormat>(context->frontend.tokenizer(), context->model.name,
                                             request.top_logprobs.has_value());
  start_answer(context, http, exchange, std::move(format), request.generation.stream,
               std::move(jobs));
  return std::nullopt;
}

}  // namespace replayssm::server
