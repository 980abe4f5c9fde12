// The engine on a thread of its own, for any number of callers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>

#include "core/result.h"
#include "engine/engine.h"
#include "engine/engine_state.h"
#include "engine/generation.h"
#include "engine/scheduler.h"

namespace replayssm {

struct ServiceOptions {
  EngineOptions engine;
  SchedulePolicy policy = SchedulePolicy::first_come;
  // Requests that may wait beyond those that can run together; empty: no limit.
  std::optional<int> max_queued_requests;
  bool prefix_cache = true;
  // Distance in tokens of the checkpoints kept along a prompt; a multiple of the fold block.
  int track_interval = 256;
  std::int64_t host_cache_bytes = 0;  // for evicted cache entries and paused sequences
};

// The engine's options with what a service adds: room for the prefix cache, rows of logits for the
// log-probabilities of prompts.
EngineOptions service_engine_options(const ServiceOptions& options);

// Owns engine, cache, scheduler and their thread. All members may be called from any thread.
class EngineService {
 public:
  // Errors: Engine::create()'s, and options out of range by the name of their flag.
  static Result<std::unique_ptr<EngineService>> start(const ServiceOptions& options);
  // Cancels what is left and waits for the thread.
  ~EngineService();
  EngineService(const EngineService&) = delete;
  EngineService& operator=(const EngineService&) = delete;

  // What was loaded and planned; constant.
  const ModelConfig& config() const;
  const ServiceOptions& options() const;
  const MemoryPlan& plan() const;
  int context_length() const;  // tokens of prompt and output together
  int threads() const;

  // Validates and queues. The handler is not called if the request is refused.
  std::variant<GenerationId, Refusal> submit(GenerationRequest request, GenerationHandler handler);

  // Ends a generation within two steps, whatever it is doing; its events end with
  // FinishReason::cancelled. Unknown and finished ids: nothing. Needs no memory.
  void cancel(GenerationId id) noexcept;

  // The text of a choice ended after its first `output_tokens` tokens (a stop string): ends it with
  // FinishReason::stop. Tokens that the engine had chosen beyond are still reported and are to be
  // ignored. Unknown and finished ids: nothing. Needs no memory.
  void stop_choice(GenerationId id, int choice, int output_tokens) noexcept;

  // Drops every cache entry that no running sequence uses, and what a drafter has learnt; returns
  // how many entries were dropped.
  int flush_cache();

  // From now on submit() refuses; what runs and waits goes on.
  void drain();
  // Whether nothing runs or waits.
  bool idle() const;
  // Steps have failed one after the other and the engine was given up (Refusal::Kind::failed).
  std::optional<Error> failure() const;

  // As of the end of the newest step.
  EngineState state() const;
  // PrefixCache::reserved().
  Status host_cache_reserved() const;

 private:
  struct Parts;
  explicit EngineService(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace replayssm
