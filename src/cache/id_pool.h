// A free list with reference counts, over the ids of one kind.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/strong_id.h"

namespace replayssm {

// Which ids are handed out as long as there are such. Empty: all.
template <class Id>
using PreferredIds = std::function<bool(Id)>;

// Hands out ids 0 .. size - 1. An id is free, or held by one or more holders. Ids come from a free
// list and are never computed from anything else, so two live holders cannot meet on one id by
// arithmetic. Giving back what is free is refused and changes nothing. Not thread-safe.
template <class Id>
class IdPool {
 public:
  IdPool(std::string_view what, int size)
      : what_(what), references_(static_cast<std::size_t>(size), 0) {
    free_.reserve(references_.size());
    for (int id = size - 1; id >= 0; --id) free_.push_back(Id{id});
  }

  // An id with one holder, or nothing if none is free: the one that was freed last, of those that
  // are preferred if there are any.
  std::optional<Id> allocate(const PreferredIds<Id>& preferred = {}) {
    if (free_.empty()) return std::nullopt;
    auto at = std::prev(free_.end());
    if (preferred) {
      const auto found = std::find_if(free_.rbegin(), free_.rend(), preferred);
      if (found != free_.rend()) at = std::prev(found.base());
    }
    const Id id = *at;
    free_.erase(at);
    references_[index(id)] = 1;
    return id;
  }

  // One holder more. Refused for an id that nobody holds.
  Status retain(Id id) {
    if (!held(id)) return refuse(what_, id.value, "an id in use, to share it");
    ++references_[index(id)];
    return {};
  }

  // One holder less. True if that was the last one and the id is free now. Refused for an id that
  // nobody holds: a second release of the same hold is a fault of the caller.
  Result<bool> release(Id id) {
    if (!held(id)) return refuse(what_, id.value, "an id in use, to release it");
    if (--references_[index(id)] > 0) return false;
    free_.push_back(id);
    return true;
  }

  // Number of holders; 0 for a free id and for one outside the pool.
  int references(Id id) const { return inside(id) ? references_[index(id)] : 0; }
  int size() const { return static_cast<int>(references_.size()); }
  int free() const { return static_cast<int>(free_.size()); }
  int used() const { return size() - free(); }

 private:
  static std::size_t index(Id id) { return static_cast<std::size_t>(id.value); }
  bool inside(Id id) const { return id.value >= 0 && id.value < size(); }
  bool held(Id id) const { return references(id) > 0; }

  std::string_view what_;
  std::vector<int> references_;
  std::vector<Id> free_;
};

}  // namespace replayssm
