// Which names mean what, and where.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace replayssm::jinja {

// The variables of a template, a macro call, or one pass of a loop; names not found here are those
// of the scope around it. Few names a scope, so a list.
class Scope {
 public:
  explicit Scope(std::shared_ptr<const Scope> around) : around_(std::move(around)) {}

  // Null where no scope has the name. Valid until the next set().
  const Value* find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->around_.get()) {
      for (const auto& [known, value] : scope->variables_) {
        if (known == name) return &value;
      }
    }
    return nullptr;
  }

  void set(std::string_view name, Value value) {
    for (auto& [known, held] : variables_) {
      if (known == name) {
        held = std::move(value);
        return;
      }
    }
    variables_.emplace_back(name, std::move(value));
  }

 private:
  std::shared_ptr<const Scope> around_;
  std::vector<std::pair<std::string, Value>> variables_;
};

}  // namespace replayssm::jinja
