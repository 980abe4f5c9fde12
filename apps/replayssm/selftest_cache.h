// Equal bits through the prefix cache: where a sequence resumes, from the pools or from the host,
// with choices and pauses beside it, changes nothing.
#pragma once

#include <cstddef>
#include <vector>

#include "core/result.h"
#include "engine/engine.h"
#include "selftest_run.h"

namespace replayssm::cli {

// One text evaluated in one go: what everything else is compared with.
struct ColdRun {
  const std::vector<TokenId>& text;
  const Run& run;                        // to the end of the text
  const std::vector<std::byte>& memory;  // there
  int prompt_tokens = 0;                 // evaluated as prompt, the rest decoded
};

// `engine` has kept rows, nothing of it is held. Appends one check a comparison.
Status check_cache_hits(Engine& engine, const ColdRun& cold, CheckList& checks);

// The same through the scheduler, by tokens and memory: n choices of one prompt, and a pause in
// prefill and in decode, whose memory goes through the cache.
Status check_cached_serving(Engine& engine, const ColdRun& cold, const std::vector<TokenId>& other,
                            CheckList& checks);

}  // namespace replayssm::cli
