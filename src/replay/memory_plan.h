// What memory goes where, decided before anything is allocated: the plan fits, or it is refused
// with the numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace replayssm {

// All sizes in bytes. "A row" is one running request.
struct MemoryNeeds {
  std::int64_t budget = 0;
  std::int64_t weights = 0;
  std::int64_t workspace = 0;
  std::int64_t drafter = 0;
  std::int64_t graphs = 0;
  std::int64_t slot = 0;          // one checkpoint over all layers, conv tail included
  std::int64_t ring_per_row = 0;  // records over all layers; 0 with replay off
  std::int64_t conv_ring_per_row = 0;
  std::int64_t null_row = 0;      // of the row that padding names, beyond those
  std::int64_t kv_per_token = 0;  // keys and values over all attention layers
  int page_tokens = 16;
  int context_length = 0;         // the longest request in tokens, > 0
  int max_running_requests = 0;   // 0: as many as fit
  int max_useful_requests = 256;  // where max_running_requests is 0, not more than this
  int slots_beyond_rows = 0;      // for shared bases
  // What a prefix cache keeps: sequences with their records (a ring, a conv ring and a slot each),
  // as many as there are running requests but at least so many; 0: no cache. And slots of
  // checkpoints alone, as many again.
  int kept_sequences_least = 0;
};

// One line of the printed table.
struct MemoryLine {
  std::string name;
  std::int64_t bytes = 0;
  std::string note;  // how the bytes come about, for example "33 slots x 18.6 MiB"
};

struct MemoryPlan {
  int rows = 0;       // running requests
  int kept_rows = 0;  // rows of the prefix cache, beyond those
  int slots = 0;
  int pages = 0;
  std::int64_t used = 0;  // the sum of the lines
  std::int64_t budget = 0;
  std::vector<MemoryLine> lines;
};

// Rows first (each with a home slot, a ring and a conv ring, and pages for one full context among
// all), then pages with what is left, at most a whole context for every row and kept row. Where
// max_running_requests is 0, as many rows as leave each of them pages for a whole context, at least
// 1. Refuses when even that does not fit, naming the budget, the smallest budget that would do and
// its parts.
Result<MemoryPlan> plan_memory(const MemoryNeeds& needs);

// "18.6 MiB"; whole bytes below 1 KiB.
std::string format_bytes(std::int64_t bytes);

// Accepts "24GiB", "512MiB", "1.5GB", "4096" (bytes). Errors name the field.
Result<std::int64_t> parse_bytes(std::string_view field, std::string_view text);

}  // namespace replayssm
