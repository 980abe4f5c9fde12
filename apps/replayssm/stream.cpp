#include "stream.h"

#include <utility>

#include "terminal.h"
#include "text/detokenizer.h"

namespace replayssm::cli {

Result<Streamed> stream(Scheduler& scheduler, GenerationId request, const Tokenizer& tokenizer,
                        const InterruptGuard& interrupt,
                        const std::function<void(std::string_view)>& show) {
  Detokenizer detokenizer(tokenizer);
  ProgressLine progress("prompt");
  std::string text;
  const auto put = [&](const std::string& piece) {
    if (piece.empty()) return;
    show(piece);
    text += piece;
  };
  while (!scheduler.idle()) {
    if (interrupt.interrupted()) scheduler.cancel(request);
    auto events = scheduler.step();
    if (!events) return events.error();
    for (const auto& step : events->progress) progress.update(step.evaluated, step.prompt);
    if (!events->tokens.empty() || !events->finished.empty()) progress.done();
    for (const auto& token : events->tokens) put(detokenizer.push(token.token));
    for (Finished& finished : events->finished) {
      if (finished.request != request) continue;
      put(detokenizer.finish());
      return Streamed{std::move(finished), std::move(text)};
    }
  }
  return Error{"the request is not known"};
}

}  // namespace replayssm::cli
