#include "server/answer.h"

#include <algorithm>
#include <random>
#include <type_traits>
#include <utility>

namespace replayssm::server {
namespace {

constexpr int kEventsPerTurn = 64;

void append(ChoiceDelta& all, ChoiceDelta delta) {
  all.reasoning += delta.reasoning;
  all.content += delta.content;
  std::move(delta.calls.begin(), delta.calls.end(), std::back_inserter(all.calls));
  std::move(delta.tokens.begin(), delta.tokens.end(), std::back_inserter(all.tokens));
  all.output_tokens = delta.output_tokens;
}

std::string finish_reason_of(const ChoiceFinished& finished, const ChoiceText& text) {
  if (finished.reason == FinishReason::length && !text.stopped()) return "length";
  return text.called() ? "tool_calls" : "stop";
}

std::uint64_t random_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace

Answer::Answer(GenerationEngine& engine, const Tokenizer& tokenizer,
               std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerFormat> format,
               StreamOptions stream, std::vector<Job> jobs, std::string request_id, Report report)
    : engine_(engine),
      tokenizer_(tokenizer),
      exchange_(std::move(exchange)),
      format_(std::move(format)),
      stream_(stream),
      jobs_(std::move(jobs)),
      generations_(jobs_.size()),
      report_(std::move(report)) {
  reported_.id = format_->id();
  reported_.request_id = std::move(request_id);
}

void Answer::start() {
  if (exchange_->closed()) return close(499, "cancelled");
  exchange_->on_closed([weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      self->abandon();
      self->close(499, "cancelled");
    }
  });
  if (stream_.stream) {
    exchange_->on_silence([weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self || self->closed_) return;
      self->open_stream();
      self->exchange_->send(kSsePing);
    });
  }
  std::vector<Job> jobs = std::move(jobs_);
  for (std::size_t i = 0; i < jobs.size() && !closed_; ++i) {
    if (!submit(i, std::move(jobs[i]))) return;
  }
}

bool Answer::submit(std::size_t generation, Job job) {
  Generation& target = generations_[generation];
  target.prompt_only = job.prompt_only;
  usage_.prompt_tokens += static_cast<int>(job.request.prompt.size());
  const int choices = job.request.choices;
  auto submitted = engine_.submit(std::move(job.request),
                                  [self = shared_from_this(), generation](GenerationEvent event) {
                                    self->arrive({generation, std::move(event)});
                                  });
  if (const auto* refusal = std::get_if<Refusal>(&submitted)) {
    fail(from_refusal(*refusal));
    return false;
  }
  target.id = std::get<GenerationId>(submitted);
  target.submitted = true;
  // After that, since a request for too many choices is refused; its events are read later.
  const auto options = std::make_shared<const ChoiceTextOptions>(std::move(job.text));
  for (int i = 0; i < choices; ++i) {
    auto text = ChoiceText::make(tokenizer_, options, random_seed());
    if (!text) {
      fail(internal_error(text.error().message));
      return false;
    }
    target.choices.push_back(Choice{*std::move(text), {}, {}, false});
  }
  return true;
}

void Answer::arrive(Arrival arrival) {
  {
    const std::lock_guard lock(arrivals_mutex_);
    arrivals_.push_back(std::move(arrival));
    if (std::exchange(reading_, true)) return;
  }
  exchange_->post([self = shared_from_this()] { self->read_arrivals(); });
}

void Answer::read_arrivals() {
  for (int i = 0; i < kEventsPerTurn; ++i) {
    std::optional<Arrival> arrival;
    {
      const std::lock_guard lock(arrivals_mutex_);
      if (closed_) arrivals_.clear();
      if (arrivals_.empty()) {
        reading_ = false;
        return;
      }
      arrival = std::move(arrivals_.front());
      arrivals_.pop_front();
    }
    handle(arrival->generation, std::move(arrival->event));
  }
  exchange_->post([self = shared_from_this()] { self->read_arrivals(); });
}

void Answer::handle(std::size_t generation, GenerationEvent event) {
  if (closed_) return;
  std::visit([&](auto& each) { on(generation, each); }, event);
}

void Answer::on(std::size_t, const PromptProgress& progress) {
  if (!stream_.stream || !stream_.return_progress) return;
  open_stream();
  exchange_->send(sse_event(format_->progress_chunk(progress)));
}

void Answer::on(std::size_t generation, PromptEvaluated& evaluated) {
  const int choices = static_cast<int>(generations_[generation].choices.size());
  const int first = static_cast<int>(generation) * choices;  // all jobs have equally many
  usage_.cached_tokens += evaluated.cached_tokens;
  format_->take_prompt(first, choices, evaluated);
  if (!stream_.stream) return;
  open_stream();
  for (int i = 0; i < choices; ++i) {
    if (Json opening = format_->opening(first + i); !opening.is_null()) {
      send_choice(std::move(opening));
    }
  }
}

void Answer::on(std::size_t generation, OutputToken& token) {
  Generation& owner = generations_[generation];
  Choice& choice = owner.choices.at(static_cast<std::size_t>(token.choice));
  if (choice.text.stopped() || owner.prompt_only) return;
  ChoiceDelta delta = choice.text.push(token.token, std::move(token.logprobs));
  ++usage_.completion_tokens;
  if (choice.text.stopped() && !choice.stop_sent) {
    choice.stop_sent = true;
    engine_.stop_choice(owner.id, token.choice, choice.text.tokens());
  }
  delta.output_tokens = choice.text.tokens();
  hand_on(generation, token.choice, std::move(delta), false);
}

void Answer::on(std::size_t generation, ChoiceFinished& finished) {
  Generation& owner = generations_[generation];
  Choice& choice = owner.choices.at(static_cast<std::size_t>(finished.choice));
  if (finished.reason == FinishReason::error) {
    return fail(internal_error(finished.error ? finished.error->message
                                              : "the generation ended with an error"));
  }
  if (finished.reason == FinishReason::cancelled) {
    return fail(unavailable("the generation was cancelled: the server is about to end"));
  }
  ChoiceDelta delta = choice.text.finish();
  delta.output_tokens = finished.completion_tokens;
  if (choice.text.stopped()) {
    const int unused = std::max(0, finished.completion_tokens - choice.text.tokens());
    delta.output_tokens -= unused;
    owner.unused_tokens += unused;
  }
  choice.finish_reason = finish_reason_of(finished, choice.text);
  usage_.reasoning_tokens += choice.text.reasoning_tokens();
  hand_on(generation, finished.choice, std::move(delta), true);
}

void Answer::on(std::size_t generation, const GenerationFinished& finished) {
  generations_[generation].finished = true;
  AnswerUsage& total = reported_.usage;
  total.prompt_tokens += finished.prompt_tokens;
  total.cached_tokens += finished.cached_tokens;
  total.lost_tokens += finished.lost_tokens;
  if (finished.lost_reason) total.lost_reason = finished.lost_reason;
  const Generation& owner = generations_[generation];
  if (!owner.prompt_only) {
    total.completion_tokens += finished.completion_tokens - owner.unused_tokens;
  }
  total.drafts += finished.drafts;
  total.drafts_accepted += finished.drafts_accepted;
  GenerationTimings& timings = reported_.timings;  // several prompts run beside each other
  timings.waiting = std::max(timings.waiting, finished.timings.waiting);
  timings.prefill = std::max(timings.prefill, finished.timings.prefill);
  timings.decode = std::max(timings.decode, finished.timings.decode);
  const bool all = std::all_of(generations_.begin(), generations_.end(),
                               [](const Generation& each) { return each.finished; });
  if (all) complete();
}

void Answer::hand_on(std::size_t generation, int choice, ChoiceDelta delta, bool last) {
  Generation& owner = generations_[generation];
  Choice& target = owner.choices[static_cast<std::size_t>(choice)];
  if (!stream_.stream) return append(target.whole, std::move(delta));
  if (delta.empty() && !last) return;
  const int index = static_cast<int>(generation * owner.choices.size()) + choice;
  send_choice(format_->delta(index, delta, target.finish_reason));
}

void Answer::send_choice(Json choice) {
  exchange_->send(sse_event(format_->chunk(std::move(choice), stream_, usage_)));
}

void Answer::open_stream() {
  if (streaming_) return;
  streaming_ = true;
  exchange_->begin_stream();
}

void Answer::complete() {
  reported_.usage.reasoning_tokens = usage_.reasoning_tokens;
  std::string finish;
  std::vector<Json> choices;
  for (Generation& generation : generations_) {
    for (Choice& choice : generation.choices) {
      finish += (finish.empty() ? "" : ",") + choice.finish_reason;
      if (stream_.stream) continue;
      const int index = static_cast<int>(choices.size());
      choices.push_back(format_->whole(index, choice.whole, choice.finish_reason));
    }
  }
  if (stream_.stream) {
    open_stream();
    if (stream_.include_usage) {
      Json chunk = format_->head(true);
      chunk["choices"] = Json::array();
      chunk["usage"] = usage_json(reported_.usage);
      chunk["timings"] = timings_json(reported_.usage, reported_.timings);
      exchange_->send(sse_event(chunk));
    }
    exchange_->send(kSseDone);
    exchange_->end_stream(Exchange::After::keep_open);
  } else {
    exchange_->respond(
        json_response(format_->answer(std::move(choices), reported_.usage, reported_.timings)));
  }
  close(200, std::move(finish));
}

void Answer::fail(ApiError error) {
  if (closed_) return;
  abandon();
  if (streaming_) {
    exchange_->send(sse_event(body_of(error)));
    exchange_->end_stream(Exchange::After::close);
  } else {
    exchange_->respond(error_response(error));
  }
  close(error.status, error.message);
}

void Answer::abandon() {
  for (const Generation& generation : generations_) {
    if (generation.submitted && !generation.finished) engine_.cancel(generation.id);
  }
}

void Answer::close(int status, std::string finish) {
  if (closed_) return;
  closed_ = true;
  reported_.status = status;
  reported_.finish = std::move(finish);
  reported_.seconds = std::chrono::duration<double>(Clock::now() - started_).count();
  if (report_) report_(reported_);
}

}  // namespace replayssm::server
