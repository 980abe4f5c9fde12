// The JSON of POST /generate: {"text", "meta_info"}, one object a choice.
#pragma once

#include <string>
#include <vector>

#include "server/answer_format.h"

namespace replayssm::server {

// A chunk holds the whole text of its choice so far, as SGLang's clients expect.
class GenerateFormat final : public AnswerFormat {
 public:
  struct Options {
    int choices = 1;     // of each prompt
    bool batch = false;  // the answer is a list
    bool logprobs = false;
    bool text_in_logprobs = false;
  };

  // `prompt_tokens`: of each prompt. `tokenizer` outlives the format.
  GenerateFormat(const Tokenizer& tokenizer, std::vector<int> prompt_tokens,
                 const Options& options);

  const std::string& id() const override { return id_; }
  Json head(bool) const override { return Json::object(); }
  Json opening(int) override { return {}; }
  void take_prompt(int first_choice, int choices, PromptEvaluated& evaluated) override;
  Json delta(int choice, const ChoiceDelta& delta, const std::string& finish_reason) override;
  Json whole(int choice, const ChoiceDelta& all, const std::string& finish_reason) override;
  Json chunk(Json choice, const StreamOptions&, const AnswerUsage&) const override {
    return choice;
  }
  Json answer(std::vector<Json> choices, const AnswerUsage& usage,
              const GenerationTimings& timings) const override;

 private:
  struct Choice {
    std::string text;
    Json logprobs = Json::array();      // [[logprob, token id, text or null], ..]
    Json top_logprobs = Json::array();  // lists of the same
  };

  void add_logprobs(const std::vector<ScoredToken>& tokens, Choice& choice) const;
  Json logprob(TokenId token, double value) const;

  const Tokenizer& tokenizer_;
  std::string id_;
  std::vector<int> prompt_tokens_;
  std::vector<int> cached_tokens_;
  Options options_;
  std::vector<Choice> choices_;
};

}  // namespace replayssm::server
