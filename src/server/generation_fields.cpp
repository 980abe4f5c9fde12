#include "server/generation_fields.h"

#include <charconv>
#include <limits>

namespace replayssm::server {
namespace {

constexpr int kAny = std::numeric_limits<int>::max();

}  // namespace

void read_sampling(RequestFields& fields, SamplingRequest& sampling) {
  fields.read("temperature", sampling.temperature);
  fields.read("top_p", sampling.top_p);
  fields.read("min_p", sampling.min_p);
  fields.read("presence_penalty", sampling.presence_penalty);
  fields.read("frequency_penalty", sampling.frequency_penalty);
  fields.read("repetition_penalty", sampling.repetition_penalty);
  fields.read_seed("seed", sampling.seed);
  // -1 is how some clients say "off".
  std::optional<int> top_k;
  fields.read("top_k", top_k, -1, kAny);
  if (top_k) sampling.top_k = *top_k == -1 ? 0 : *top_k;
}

void read_logit_bias(RequestFields& fields, std::vector<std::pair<TokenId, float>>& target) {
  const Json& value = fields.take("logit_bias");
  if (value.is_null()) return;
  constexpr std::string_view kAccepted = "an object of token ids with numbers from -100 to 100";
  if (!value.is_object()) {
    return fields.fail("logit_bias", refuse("logit_bias", shown(value), kAccepted).message);
  }
  for (const auto& [name, bias] : value.items()) {
    TokenId id = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    const bool is_id = error == std::errc{} && end == name.data() + name.size() && id >= 0;
    const double number = bias.is_number() ? bias.get<double>() : 1000.0;
    if (!is_id || !(number >= -100.0 && number <= 100.0)) {
      const std::string pair = fmt::format("\"{}\": {}", name, shown(bias));
      return fields.fail("logit_bias", refuse("logit_bias", pair, kAccepted).message);
    }
    target.emplace_back(id, static_cast<float>(number));
  }
}

namespace {

void read_stream_options(RequestFields& fields, StreamOptions& target) {
  fields.read("stream", target.stream);
  fields.read("return_progress", target.return_progress);
  const Json& value = fields.take("stream_options");
  if (value.is_null()) return;
  if (!value.is_object()) {
    return fields.fail("stream_options",
                       refuse("stream_options", shown(value), "an object").message);
  }
  RequestFields options(value, "stream_options.");
  options.read("include_usage", target.include_usage);
  options.read("continuous_usage_stats", target.continuous_usage);
  options.ignore({"include_obfuscation"});  // padding against traffic analysis; none is added
  options.refuse_others();
  if (!options.ok()) return fields.fail(*options.error());
  if (!target.stream && !value.empty()) {
    fields.fail("stream_options", "stream_options: expected only together with stream: true");
  }
}

}  // namespace

void read_generation_fields(RequestFields& fields, GenerationFields& target, int fewest_tokens) {
  fields.read("model", target.model);
  read_sampling(fields, target.sampling);
  fields.read("max_tokens", target.max_tokens, fewest_tokens, kAny);
  fields.read("min_tokens", target.min_tokens, 0, kAny);
  fields.read("ignore_eos", target.ignore_eos);
  fields.read("n", target.n, 1, kMostChoices);
  fields.read("priority", target.priority, -1000000, 1000000);
  fields.read_texts("stop", target.stop, kMostStopTexts);
  fields.read_token_ids("stop_token_ids", target.stop_token_ids);
  fields.read("include_stop_str_in_output", target.include_stop_text);
  fields.read("skip_special_tokens", target.skip_special_tokens);
  read_logit_bias(fields, target.logit_bias);
  read_stream_options(fields, target.stream);

  fields.ignore({"user", "metadata", "store", "service_tier", "safety_identifier",
                 "prompt_cache_key", "prompt_cache_retention", "request_id"});
  fields.accept_neutral({{"use_beam_search", false},
                         {"length_penalty", 1.0},
                         {"early_stopping", false},
                         {"spaces_between_special_tokens", true},
                         {"truncate_prompt_tokens", nullptr},
                         {"prompt_logprobs", nullptr},
                         {"return_token_ids", false},
                         {"return_tokens_as_token_ids", false},
                         {"guided_regex", nullptr},
                         {"guided_choice", nullptr},
                         {"guided_grammar", nullptr},
                         {"logits_processors", nullptr},
                         {"bad_words", Json::array()},
                         {"allowed_token_ids", nullptr}});
  if (!fields.ok()) return;
  for (const std::string& text : target.stop) {
    if (text.size() <= kMostStopBytes) continue;
    return fields.fail("stop", refuse("stop", fmt::format("a text of {} bytes", text.size()),
                                      fmt::format("at most {} bytes", kMostStopBytes))
                                   .message);
  }
}

void check_min_tokens(RequestFields& fields, const GenerationFields& target) {
  if (!fields.ok() || !target.max_tokens || target.min_tokens <= *target.max_tokens) return;
  fields.fail("min_tokens", refuse("min_tokens", target.min_tokens,
                                   fmt::format("at most max_tokens, {}", *target.max_tokens))
                                .message);
}

}  // namespace replayssm::server
