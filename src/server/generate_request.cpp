#include "server/generate_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <variant>

namespace replayssm::server {
namespace {

void read_sampling_params(RequestFields& fields, GenerationFields& target) {
  constexpr int kAny = std::numeric_limits<int>::max();
  const Json& value = fields.take("sampling_params");
  target.max_tokens = kUsualNewTokens;
  if (value.is_null()) return;
  if (!value.is_object()) {
    return fields.fail("sampling_params",
                       refuse("sampling_params", shown(value), "an object").message);
  }
  RequestFields params(value, "sampling_params.");
  read_sampling(params, target.sampling);
  params.read_seed("sampling_seed", target.sampling.seed);
  read_logit_bias(params, target.logit_bias);
  params.read("max_new_tokens", target.max_tokens, 1, kAny);
  params.read("min_new_tokens", target.min_tokens, 0, kAny);
  params.read("ignore_eos", target.ignore_eos);
  params.read("n", target.n, 1, kMostChoices);
  params.read_texts("stop", target.stop, kMostStopTexts);
  params.read_token_ids("stop_token_ids", target.stop_token_ids);
  params.read("no_stop_trim", target.include_stop_text);
  params.read("skip_special_tokens", target.skip_special_tokens);
  params.accept_neutral({{"spaces_between_special_tokens", true},
                         {"stop_regex", nullptr},
                         {"json_schema", nullptr},
                         {"regex", nullptr},
                         {"ebnf", nullptr},
                         {"structural_tag", nullptr},
                         {"custom_params", nullptr},
                         {"beam_width", nullptr}});
  params.refuse_others();
  if (!params.ok()) return fields.fail(*params.error());
  if (target.min_tokens > *target.max_tokens) {
    fields.fail(invalid_field("sampling_params.min_new_tokens",
                              refuse("sampling_params.min_new_tokens", target.min_tokens,
                                     fmt::format("at most max_new_tokens, {}", *target.max_tokens))
                                  .message));
  }
}

// One of `text` and `input_ids`.
void read_inputs(RequestFields& fields, GenerateRequest& target) {
  std::vector<CompletionRequest::Prompt> ids;
  const Json& text = fields.take("text");
  const Json& input_ids = fields.take("input_ids");
  read_prompts(fields, "text", target.prompts);
  read_prompts(fields, "input_ids", ids);
  if (!fields.ok()) return;
  const auto is_text = [](const auto& prompt) {
    return std::holds_alternative<std::string>(prompt);
  };
  if (!std::all_of(target.prompts.begin(), target.prompts.end(), is_text)) {
    return fields.fail("text", refuse("text", shown(text), "a text or a list of texts").message);
  }
  if (std::any_of(ids.begin(), ids.end(), is_text)) {
    return fields.fail("input_ids", refuse("input_ids", shown(input_ids),
                                           "a list of token ids or a list of such lists")
                                        .message);
  }
  if (target.prompts.empty() == ids.empty()) {
    return fields.fail("text", "text: expected either text or input_ids");
  }
  target.batch = text.is_array() || (input_ids.is_array() && input_ids.front().is_array());
  if (target.prompts.empty()) target.prompts = std::move(ids);
}

}  // namespace

std::optional<ApiError> parse_generate_request(const Json& body, GenerateRequest& target) {
  RequestFields fields(body);
  fields.read("model", target.generation.model);
  read_inputs(fields, target);
  read_sampling_params(fields, target.generation);
  fields.read("stream", target.generation.stream.stream);
  fields.read("priority", target.generation.priority, -1000000, 1000000);
  bool logprobs = false;
  int top = 0;
  fields.read("return_logprob", logprobs);
  fields.read("top_logprobs_num", top, 0, kMostTopLogprobs);
  fields.read("return_text_in_logprobs", target.text_in_logprobs);
  if (logprobs) target.top_logprobs = top;
  fields.ignore({"rid", "log_metrics", "bootstrap_host", "bootstrap_port", "bootstrap_room"});
  fields.accept_neutral({{"logprob_start_len", -1},
                         {"token_ids_logprob", nullptr},
                         {"input_embeds", nullptr},
                         {"image_data", nullptr},
                         {"audio_data", nullptr},
                         {"video_data", nullptr},
                         {"lora_path", nullptr},
                         {"session_params", nullptr},
                         {"custom_logit_processor", nullptr},
                         {"return_hidden_states", false},
                         {"return_routed_experts", false}});
  fields.refuse_others();
  if (!fields.ok()) return fields.error();
  target.batch = target.batch || target.generation.n > 1;
  return std::nullopt;
}

}  // namespace replayssm::server
