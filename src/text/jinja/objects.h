// The two objects of a template that have attributes of their own.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace replayssm::jinja {

// namespace(a=1): what a loop may assign to for the code after it.
class Namespace : public Object {
 public:
  std::string_view type_name() const override { return "namespace"; }
  Value attribute(std::string_view name) const override;
  bool assign(std::string_view name, const Value& value) override;

 private:
  Dict values_;
};

// The variable "loop" of a for loop: one object for all its passes.
class Loop : public Object {
 public:
  // `items` are those that pass the loop's condition.
  explicit Loop(std::vector<Value> items) : items_(std::move(items)) {}

  const std::vector<Value>& items() const { return items_; }
  void move_to(std::size_t index) { index_ = index; }

  std::string_view type_name() const override { return "loop"; }
  Value attribute(std::string_view name) const override;
  bool assign(std::string_view, const Value&) override { return false; }

 private:
  Value cycle() const;
  Value changed() const;

  std::vector<Value> items_;
  std::size_t index_ = 0;
  std::shared_ptr<Value> last_changed_ = std::make_shared<Value>();
};

}  // namespace replayssm::jinja
