#include "server/completion_format.h"

#include <utility>

namespace replayssm::server {

class CompletionFormat::Logprobs {
 public:
  explicit Logprobs(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // `scores` empty: the first token of a prompt, which nothing predicts.
  void add(TokenId token, std::size_t offset, const TokenLogprobs* scores) {
    const std::string text = token_text(tokenizer_, token);
    tokens_.push_back(text);
    offsets_.push_back(offset);
    if (scores == nullptr) {
      values_.push_back(Json());
      top_.push_back(Json());
      return;
    }
    values_.push_back(finite_logprob(scores->logprob));
    Json top = Json::object();
    for (const TokenLogprob& other : scores->top) {
      top[token_text(tokenizer_, other.token)] = finite_logprob(other.logprob);
    }
    top[text] = finite_logprob(scores->logprob);
    top_.push_back(std::move(top));
  }

  Json json() && {
    return {{"tokens", std::move(tokens_)},
            {"token_logprobs", std::move(values_)},
            {"top_logprobs", std::move(top_)},
            {"text_offset", std::move(offsets_)}};
  }

 private:
  const Tokenizer& tokenizer_;
  Json tokens_ = Json::array();
  Json values_ = Json::array();
  Json top_ = Json::array();
  Json offsets_ = Json::array();
};

CompletionFormat::CompletionFormat(const Tokenizer& tokenizer, std::string model, bool logprobs,
                                   std::vector<Prompt> echo, int choices)
    : tokenizer_(tokenizer),
      id_(random_id("cmpl-")),
      model_(std::move(model)),
      created_(unix_time()),
      logprobs_(logprobs),
      choices_(choices) {
  for (Prompt& prompt : echo) {
    Echo& entry = echo_.emplace_back();
    entry.text = std::move(prompt.text);
    entry.characters = count_characters(entry.text);
    entry.tokens = std::move(prompt.tokens);
    Detokenizer detokenizer(tokenizer_, false);
    std::size_t offset = 0;
    for (const TokenId token : entry.tokens) {
      const std::string text = detokenizer.push(token);
      entry.offsets.push_back(offset + detokenizer.replaced_earlier());
      offset += count_characters(text);
    }
  }
}

Json CompletionFormat::head(bool) const {
  return {{"id", id_},
          {"object", "text_completion"},
          {"created", created_},
          {"model", model_},
          {"system_fingerprint", kSystemFingerprint}};
}

const CompletionFormat::Echo* CompletionFormat::echo_of(int choice) const {
  return echo_.empty() ? nullptr : &echo_[static_cast<std::size_t>(choice / choices_)];
}

void CompletionFormat::take_prompt(int first_choice, int choices, PromptEvaluated& evaluated) {
  if (echo_.empty()) return;
  echo_[static_cast<std::size_t>(first_choice / choices)].logprobs = std::move(evaluated.logprobs);
}

void CompletionFormat::add_echo(const Echo& echo, Logprobs& logprobs) const {
  for (std::size_t i = 0; i < echo.tokens.size(); ++i) {
    const bool known = i < echo.logprobs.size() && echo.logprobs[i].has_value();
    logprobs.add(echo.tokens[i], echo.offsets[i], known ? &*echo.logprobs[i] : nullptr);
  }
}

void CompletionFormat::add_output(const std::vector<ScoredToken>& tokens, std::size_t offset,
                                  Logprobs& logprobs) const {
  for (const ScoredToken& scored : tokens) {
    logprobs.add(scored.token, offset + scored.text_offset, &scored.logprobs);
  }
}

Json CompletionFormat::opening(int choice) {
  const Echo* echo = echo_of(choice);
  if (echo == nullptr) return {};
  Json logprobs;
  if (logprobs_) {
    Logprobs list(tokenizer_);
    add_echo(*echo, list);
    logprobs = std::move(list).json();
  }
  return {{"index", choice},
          {"text", echo->text},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", Json()}};
}

Json CompletionFormat::delta(int choice, const ChoiceDelta& delta,
                             const std::string& finish_reason) {
  const Echo* echo = echo_of(choice);
  Json logprobs;
  if (!delta.tokens.empty()) {
    Logprobs list(tokenizer_);
    add_output(delta.tokens, echo == nullptr ? 0 : echo->characters, list);
    logprobs = std::move(list).json();
  }
  return {{"index", choice},
          {"text", delta.content},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", finish_reason.empty() ? Json() : Json(finish_reason)}};
}

Json CompletionFormat::whole(int choice, const ChoiceDelta& all, const std::string& finish_reason) {
  const Echo* echo = echo_of(choice);
  Json logprobs;
  if (logprobs_) {
    Logprobs list(tokenizer_);
    if (echo != nullptr) add_echo(*echo, list);
    add_output(all.tokens, echo == nullptr ? 0 : echo->characters, list);
    logprobs = std::move(list).json();
  }
  return {{"index", choice},
          {"text", (echo == nullptr ? "" : echo->text) + all.content},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", finish_reason}};
}

}  // namespace replayssm::server
