#include "server/choice_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace replayssm::server {

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

ChoiceText::ChoiceText(const Tokenizer& tokenizer, std::shared_ptr<const ChoiceTextOptions> options,
                       StopMatcher stop)
    : detokenizer_(tokenizer, options->skip_special_tokens),
      stop_(std::move(stop)),
      options_(std::move(options)) {
  if (options_->reasoning) reasoning_.emplace(*options_->reasoning);
}

Result<ChoiceText> ChoiceText::make(const Tokenizer& tokenizer,
                                    std::shared_ptr<const ChoiceTextOptions> options,
                                    std::uint64_t id_seed) {
  auto stop = StopMatcher::make(options->stop, options->include_stop_text
                                                   ? StopMatcher::MatchedText::included
                                                   : StopMatcher::MatchedText::excluded);
  if (!stop) return stop.error();
  ChoiceText text(tokenizer, std::move(options), *std::move(stop));
  text.id_seed_ = id_seed;
  for (const TokenId token : text.options_->prompt_tail) text.detokenizer_.push(token);
  if (text.options_->calls == Calls::parsed) {
    auto calls = ToolCallParser::make(text.options_->call_format, text.options_->tools, id_seed);
    if (!calls) return calls.error();
    text.calls_.emplace(*std::move(calls));
  }
  return text;
}

ChoiceDelta ChoiceText::push(TokenId token, std::optional<TokenLogprobs> logprobs) {
  ChoiceDelta delta;
  if (stopped()) return delta;
  ++tokens_;
  const bool was_reasoning = reasoning_ && reasoning_->in_reasoning();
  const std::string text = detokenizer_.push(token);
  if (logprobs) {
    const std::size_t earlier = detokenizer_.replaced_earlier();
    waiting_.push_back({pushed_bytes_ + earlier * kReplacementCharacter.size(),
                        {token, pushed_chars_ + earlier, *std::move(logprobs)}});
  }
  pushed_bytes_ += text.size();
  pushed_chars_ += count_characters(text);
  const std::string certain = tokens_ < options_->min_tokens ? text : stop_.push(text);
  released_bytes_ += certain.size();
  split(certain, false, delta);
  if (was_reasoning || (reasoning_ && reasoning_->in_reasoning())) ++reasoning_tokens_;
  release_tokens(false, delta);
  return delta;
}

ChoiceDelta ChoiceText::finish() {
  ChoiceDelta delta;
  const bool cut = stop_.stopped();
  const std::string tail = stop_.finish();
  released_bytes_ += tail.size();
  split(tail, true, delta);
  release_tokens(!cut, delta);
  waiting_.clear();
  return delta;
}

void ChoiceText::split(std::string_view text, bool last, ChoiceDelta& delta) {
  if (!reasoning_) return find_calls(text, last, delta);
  ReasoningDelta parts = reasoning_->push(text);
  if (last) {
    ReasoningDelta rest = reasoning_->finish();
    parts.reasoning += rest.reasoning;
    parts.content += rest.content;
  }
  delta.reasoning += parts.reasoning;
  find_calls(parts.content, last, delta);
}

void ChoiceText::find_calls(std::string_view text, bool last, ChoiceDelta& delta) {
  switch (options_->calls) {
    case Calls::none:
      delta.content += text;
      break;
    case Calls::parsed:
      if (call_complete_) break;
      take(calls_->push(text), delta);
      if (last && !call_complete_) take(calls_->finish(), delta);
      break;
    case Calls::named:
      take_named(text, delta);
      break;
    case Calls::json_array:
      held_answer_ += text;
      if (last) take_json_array(delta);
      break;
  }
}

void ChoiceText::take(std::vector<ToolCallEvent> events, ChoiceDelta& delta) {
  for (ToolCallEvent& event : events) {
    if (event.kind == ToolCallEvent::Kind::content) {
      delta.content += event.text;
    } else if (event.kind == ToolCallEvent::Kind::end) {
      ++calls_seen_;
      call_complete_ = options_->one_call;
      if (call_complete_) return;
    } else {
      delta.calls.push_back(std::move(event));
    }
  }
}

std::string ChoiceText::call_id() const {
  return fmt::format("call_{:016x}{:04x}", id_seed_, calls_seen_);
}

void ChoiceText::take_named(std::string_view text, ChoiceDelta& delta) {
  if (text.empty()) return;
  ToolCallEvent event;
  event.index = 0;
  if (calls_seen_ == 0) {
    event.kind = ToolCallEvent::Kind::begin;
    event.id = call_id();
    event.name = options_->call_name;
    delta.calls.push_back(event);
    calls_seen_ = 1;
  }
  event = {ToolCallEvent::Kind::arguments, 0, {}, {}, std::string(text)};
  delta.calls.push_back(std::move(event));
}

// An array that is cut off (by max_tokens) is no list of calls; it is shown as what it is.
void ChoiceText::take_json_array(ChoiceDelta& delta) {
  const auto list = parse_json(held_answer_);
  if (!list.ok() || !list->is_array()) {
    delta.content += held_answer_;
    return;
  }
  for (const Json& call : *list) {
    const int index = calls_seen_;
    delta.calls.push_back(
        {ToolCallEvent::Kind::begin, index, call_id(), call["name"].get<std::string>(), {}});
    delta.calls.push_back(
        {ToolCallEvent::Kind::arguments, index, {}, {}, to_text(call["arguments"])});
    ++calls_seen_;
  }
}

// A token is reported with the text it begins in; those behind a stop string are not.
void ChoiceText::release_tokens(bool all, ChoiceDelta& delta) {
  while (!waiting_.empty() && (all || waiting_.front().begin < released_bytes_)) {
    delta.tokens.push_back(std::move(waiting_.front().token));
    waiting_.pop_front();
  }
}

}  // namespace replayssm::server
