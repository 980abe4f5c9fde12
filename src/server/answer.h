// One request's answer in the making: submits what is to be generated, follows the events, and
// hands the text on as it becomes certain, or whole at the end.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/answer_format.h"
#include "server/choice_text.h"
#include "server/generation_engine.h"
#include "server/generation_fields.h"
#include "server/http.h"

namespace replayssm::server {

// One prompt, and how the text of its choices is read.
struct Job {
  GenerationRequest request;
  ChoiceTextOptions text;
  bool prompt_only = false;  // nothing that is generated is shown or counted
};

// How a request ended, for the log and the metrics.
struct AnswerReport {
  std::string id;
  std::string request_id;
  int status = 200;
  std::string finish;  // finish reasons of the choices, or "cancelled", or the error
  AnswerUsage usage;
  GenerationTimings timings;
  double seconds = 0;
};

// Lives as long as a generation or the exchange knows it. Everything runs in the exchange's
// sequence; the engine's thread only leaves its events, which are read some at a time: however far
// they are ahead, a client that goes away is noticed between two turns.
class Answer : public std::enable_shared_from_this<Answer> {
 public:
  using Report = std::function<void(const AnswerReport&)>;

  // `engine` and `tokenizer` outlive the answer. At least one job.
  Answer(GenerationEngine& engine, const Tokenizer& tokenizer, std::shared_ptr<Exchange> exchange,
         std::unique_ptr<AnswerFormat> format, StreamOptions stream, std::vector<Job> jobs,
         std::string request_id, Report report);

  // Submits all jobs, or answers with the first refusal and leaves none behind.
  void start();

 private:
  using Clock = std::chrono::steady_clock;
  struct Choice {
    ChoiceText text;
    ChoiceDelta whole;  // all deltas so far, where nothing is streamed
    std::string finish_reason;
    bool stop_sent = false;
  };
  struct Generation {
    GenerationId id;
    bool submitted = false;
    bool finished = false;
    bool prompt_only = false;
    int unused_tokens = 0;  // chosen by the engine behind a stop string
    std::vector<Choice> choices;
  };

  struct Arrival {
    std::size_t generation;
    GenerationEvent event;
  };

  bool submit(std::size_t generation, Job job);
  void arrive(Arrival arrival);  // on the engine's thread
  void read_arrivals();
  void handle(std::size_t generation, GenerationEvent event);
  void on(std::size_t generation, const PromptProgress& progress);
  void on(std::size_t generation, PromptEvaluated& evaluated);
  void on(std::size_t generation, OutputToken& token);
  void on(std::size_t generation, ChoiceFinished& finished);
  void on(std::size_t generation, const GenerationFinished& finished);
  void hand_on(std::size_t generation, int choice, ChoiceDelta delta, bool last);
  void send_choice(Json choice);
  void open_stream();
  void complete();
  void fail(ApiError error);
  void abandon();  // cancels what still runs
  void close(int status, std::string finish);

  GenerationEngine& engine_;
  const Tokenizer& tokenizer_;
  std::shared_ptr<Exchange> exchange_;
  std::unique_ptr<AnswerFormat> format_;
  StreamOptions stream_;
  std::vector<Job> jobs_;
  std::vector<Generation> generations_;
  Report report_;
  AnswerReport reported_;
  AnswerUsage usage_;
  Clock::time_point started_ = Clock::now();
  bool streaming_ = false;
  bool closed_ = false;

  std::mutex arrivals_mutex_;
  std::deque<Arrival> arrivals_;
  bool reading_ = false;  // a turn of read_arrivals() is posted or runs
};

}  // namespace replayssm::server
