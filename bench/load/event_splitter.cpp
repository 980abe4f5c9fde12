#include "load/event_splitter.h"

namespace replayssm::load {

std::vector<std::string> EventSplitter::push(std::string_view bytes) {
  constexpr std::string_view kField = "data:";
  std::vector<std::string> events;
  for (const char c : bytes) {
    if (c != '\n') {
      line_ += c;
      continue;
    }
    if (line_.ends_with('\r')) line_.pop_back();
    if (line_.empty()) {
      if (has_data_) events.push_back(std::move(data_));
      data_.clear();
      has_data_ = false;
    } else if (line_.starts_with(kField)) {
      std::string_view value = std::string_view(line_).substr(kField.size());
      if (value.starts_with(' ')) value.remove_prefix(1);
      if (has_data_) data_ += '\n';
      data_ += value;
      has_data_ = true;
    }
    line_.clear();
  }
  return events;
}

}  // namespace replayssm::load
