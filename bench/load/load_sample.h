// What one request of a load test measured.
#pragma once

#include <string>
#include <vector>

namespace replayssm::load {

// Seconds, by this machine's steady clock: from the moment before the request is written to the
// moment at which bytes have been read.
struct LoadSample {
  std::string error;         // empty: the answer was complete
  double first = 0;          // to the first text, reasoning or tool call (TTFT)
  double last = 0;           // to the last of them
  double total = 0;          // to the end of the response
  std::vector<double> gaps;  // between texts; those that came in one read have 0 between them
  // By the usage of the response.
  int prompt_tokens = 0;
  int cached_tokens = 0;
  int completion_tokens = 0;
};

}  // namespace replayssm::load
