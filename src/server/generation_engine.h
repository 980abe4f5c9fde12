// The engine as the server uses it. An interface, so that tests can put a scripted one there.
#pragma once

#include <optional>
#include <variant>

#include "core/result.h"
#include "engine/engine_service.h"
#include "engine/engine_state.h"
#include "engine/generation.h"

namespace replayssm::server {

// Members as EngineService's of the same names; callable from any thread.
class GenerationEngine {
 public:
  virtual ~GenerationEngine() = default;

  virtual int context_length() const = 0;
  virtual std::variant<GenerationId, Refusal> submit(GenerationRequest request,
                                                     GenerationHandler handler) = 0;
  virtual void cancel(GenerationId id) noexcept = 0;
  virtual void stop_choice(GenerationId id, int choice, int output_tokens) noexcept = 0;
  virtual int flush_cache() = 0;
  virtual void drain() = 0;
  virtual bool idle() const = 0;
  virtual std::optional<Error> failure() const = 0;
  virtual EngineState state() const = 0;
};

// The real one. The service outlives it.
class ServiceEngine final : public GenerationEngine {
 public:
  explicit ServiceEngine(EngineService& service) : service_(service) {}

  int context_length() const override { return service_.context_length(); }
  std::variant<GenerationId, Refusal> submit(GenerationRequest request,
                                             GenerationHandler handler) override {
    return service_.submit(std::move(request), std::move(handler));
  }
  void cancel(GenerationId id) noexcept override { service_.cancel(id); }
  void stop_choice(GenerationId id, int choice, int output_tokens) noexcept override {
    service_.stop_choice(id, choice, output_tokens);
  }
  int flush_cache() override { return service_.flush_cache(); }
  void drain() override { service_.drain(); }
  bool idle() const override { return service_.idle(); }
  std::optional<Error> failure() const override { return service_.failure(); }
  EngineState state() const override { return service_.state(); }

 private:
  EngineService& service_;
};

}  // namespace replayssm::server
