// Server-sent events out of the bytes of a response, however they are cut.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace replayssm::load {

class EventSplitter {
 public:
  // The data of each event that is complete now. Comments and other fields are skipped; data of
  // several lines is joined by line feeds.
  std::vector<std::string> push(std::string_view bytes);

 private:
  std::string line_;
  std::string data_;
  bool has_data_ = false;
};

}  // namespace replayssm::load
