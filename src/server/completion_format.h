// The JSON of text completions, whole and in chunks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/answer_format.h"

namespace replayssm::server {

class CompletionFormat final : public AnswerFormat {
 public:
  struct Prompt {
    std::string text;
    std::vector<TokenId> tokens;
  };

  // `echo`: prompts, one for `choices` choices each, are shown before the output; empty without
  // echo. `tokenizer` outlives the format.
  CompletionFormat(const Tokenizer& tokenizer, std::string model, bool logprobs,
                   std::vector<Prompt> echo, int choices);

  const std::string& id() const override { return id_; }
  Json head(bool streamed) const override;
  Json opening(int choice) override;
  void take_prompt(int first_choice, int choices, PromptEvaluated& evaluated) override;
  Json delta(int choice, const ChoiceDelta& delta, const std::string& finish_reason) override;
  Json whole(int choice, const ChoiceDelta& all, const std::string& finish_reason) override;

 private:
  struct Echo {
    std::string text;
    std::size_t characters = 0;
    std::vector<TokenId> tokens;
    std::vector<std::size_t> offsets;  // in characters, one a token
    std::vector<std::optional<TokenLogprobs>> logprobs;
  };
  // The legacy form: {"tokens", "token_logprobs", "top_logprobs", "text_offset"}.
  class Logprobs;

  const Echo* echo_of(int choice) const;
  void add_echo(const Echo& echo, Logprobs& logprobs) const;
  void add_output(const std::vector<ScoredToken>& tokens, std::size_t offset,
                  Logprobs& logprobs) const;

  const Tokenizer& tokenizer_;
  std::string id_;
  std::string model_;
  std::int64_t created_;
  bool logprobs_;
  std::vector<Echo> echo_;
  int choices_;
};

}  // namespace replayssm::server
