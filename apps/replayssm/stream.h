// Running one request to its end, showing its text as it comes.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "engine/scheduler.h"
#include "interrupt.h"
#include "text/tokenizer.h"

namespace replayssm::cli {

struct Streamed {
  Finished finished;
  std::string text;
};

// Steps the scheduler until `request` is finished; an interrupt cancels it. `show` is given each
// piece of text once. Progress of a long prefill is shown on a terminal. Errors: the engine's.
Result<Streamed> stream(Scheduler& scheduler, GenerationId request, const Tokenizer& tokenizer,
                        const InterruptGuard& interrupt,
                        const std::function<void(std::string_view)>& show);

}  // namespace replayssm::cli
