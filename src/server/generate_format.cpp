#include "server/generate_format.h"

#include <utility>

namespace replayssm::server {
namespace {

std::size_t index(int value) { return static_cast<std::size_t>(value); }

Json finish_json(const std::string& reason, int output_tokens) {
  if (reason.empty()) return {};
  Json finish = {{"type", reason}};
  if (reason == "length") finish["length"] = output_tokens;
  return finish;
}

}  // namespace

GenerateFormat::GenerateFormat(const Tokenizer& tokenizer, std::vector<int> prompt_tokens,
                               const Options& options)
    : tokenizer_(tokenizer),
      id_(random_id("gen-")),
      prompt_tokens_(std::move(prompt_tokens)),
      cached_tokens_(prompt_tokens_.size(), 0),
      options_(options),
      choices_(prompt_tokens_.size() * index(options.choices)) {}

void GenerateFormat::take_prompt(int first_choice, int choices, PromptEvaluated& evaluated) {
  cached_tokens_[index(first_choice / choices)] = evaluated.cached_tokens;
}

Json GenerateFormat::logprob(TokenId token, double value) const {
  return Json::array({finite_logprob(value), token,
                      options_.text_in_logprobs ? Json(token_text(tokenizer_, token)) : Json()});
}

void GenerateFormat::add_logprobs(const std::vector<ScoredToken>& tokens, Choice& choice) const {
  for (const ScoredToken& scored : tokens) {
    choice.logprobs.push_back(logprob(scored.token, scored.logprobs.logprob));
    Json top = Json::array();
    for (const TokenLogprob& other : scored.logprobs.top) {
      top.push_back(logprob(other.token, other.logprob));
    }
    choice.top_logprobs.push_back(std::move(top));
  }
}

Json GenerateFormat::delta(int choice, const ChoiceDelta& delta, const std::string& finish_reason) {
  Choice& so_far = choices_[index(choice)];
  so_far.text += delta.content;
  add_logprobs(delta.tokens, so_far);
  const std::size_t prompt = index(choice / options_.choices);
  Json info = {{"id", id_},
               {"finish_reason", finish_json(finish_reason, delta.output_tokens)},
               {"prompt_tokens", prompt_tokens_[prompt]},
               {"completion_tokens", delta.output_tokens},
               {"cached_tokens", cached_tokens_[prompt]}};
  if (options_.logprobs) {
    info["output_token_logprobs"] = so_far.logprobs;
    info["output_top_logprobs"] = so_far.top_logprobs;
  }
  Json result = {{"text", so_far.text}, {"meta_info", std::move(info)}};
  if (options_.batch) result["index"] = choice;
  return result;
}

Json GenerateFormat::whole(int choice, const ChoiceDelta& all, const std::string& finish_reason) {
  return delta(choice, all, finish_reason);
}

Json GenerateFormat::answer(std::vector<Json> choices, const AnswerUsage&,
                            const GenerationTimings& timings) const {
  for (Json& choice : choices) {
    choice["meta_info"]["e2e_latency"] = timings.waiting + timings.prefill + timings.decode;
  }
  return options_.batch ? Json(std::move(choices)) : std::move(choices.front());
}

}  // namespace replayssm::server
