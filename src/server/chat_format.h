// The JSON of chat completions, whole and in chunks.
#pragma once

#include <string>
#include <vector>

#include "server/answer_format.h"

namespace replayssm::server {

class ChatFormat final : public AnswerFormat {
 public:
  // `logprobs`: whether log-probabilities were asked for. `tokenizer` outlives the format.
  ChatFormat(const Tokenizer& tokenizer, std::string model, bool logprobs);

  const std::string& id() const override { return id_; }
  Json head(bool streamed) const override;
  Json opening(int choice) override;
  void take_prompt(int, int, PromptEvaluated&) override {}
  Json delta(int choice, const ChoiceDelta& delta, const std::string& finish_reason) override;
  Json whole(int choice, const ChoiceDelta& all, const std::string& finish_reason) override;

 private:
  Json logprobs_json(const std::vector<ScoredToken>& tokens) const;

  const Tokenizer& tokenizer_;
  std::string id_;
  std::string model_;
  std::int64_t created_;
  bool logprobs_;
};

}  // namespace replayssm::server
