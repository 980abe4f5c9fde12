// Engines of the small checkpoint with a random block drafter.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "block_drafter.h"
#include "engine/engine_options.h"

namespace replayssm {

inline void set_drafter(EngineOptions& options, const DrafterKind& kind, const TestDrafter& files) {
  options.speculation.algorithm =
      kind.dspark ? SpeculativeAlgorithm::dspark : SpeculativeAlgorithm::dflash;
  options.speculation.draft_model_path = files.path();
  options.speculation.step_rates = "none";  // all drafts are verified, however slow this machine is
}

// One directory for each kind, until the program ends.
inline void set_drafter(EngineOptions& options, const DrafterKind& kind) {
  static std::map<std::string, std::unique_ptr<TestDrafter>> made;
  auto& files = made[kind.name];
  if (files == nullptr) files = std::make_unique<TestDrafter>(kind);
  set_drafter(options, kind, *files);
}

}  // namespace replayssm
