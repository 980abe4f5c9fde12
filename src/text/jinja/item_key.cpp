#include "text/jinja/item_key.h"

#include <algorithm>
#include <charconv>

#include "text/jinja/interpreter.h"
#include "text/jinja/text_operations.h"

namespace replayssm::jinja {

Value key_of(Interpreter& interpreter, const Value& item, const Value* path,
             const Value* otherwise) {
  if (path == nullptr || path->is_none()) return item;
  if (path->text() == nullptr) return interpreter.item(item, *path);
  Value value = item;
  for (const OriginText& part : split(*path->text(), ".", -1)) {
    const std::string& name = part.bytes();
    const bool is_index = !name.empty() && std::all_of(name.begin(), name.end(),
                                                       [](char c) { return c >= '0' && c <= '9'; });
    std::int64_t index = 0;
    if (is_index &&
        std::from_chars(name.data(), name.data() + name.size(), index).ec == std::errc()) {
      value = interpreter.item(value, index);
    } else {
      value = interpreter.item(value, part);
    }
    if (value.is_undefined() && otherwise != nullptr) value = *otherwise;
    if (interpreter.failed()) break;
  }
  return value;
}

Value without_case(const Value& value) {
  return value.text() == nullptr ? value : Value(lower(*value.text()));
}

}  // namespace replayssm::jinja
