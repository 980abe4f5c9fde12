#include "engine/machine_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace replayssm {
namespace {

// The file's number; nothing where there is no such file or it says "max".
std::optional<std::int64_t> number_in(const char* path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

std::optional<std::int64_t> available_in_proc() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::int64_t kibibytes = 0;
  while (file >> name >> kibibytes) {
    if (name == "MemAvailable:") return kibibytes * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

}  // namespace

std::int64_t available_memory() {
  std::int64_t bytes =
      available_in_proc().value_or(std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE));
  // Control groups, version 2 and 1. A version 1 group without a limit says a huge number.
  static constexpr const char* kGroups[][2] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes",
       "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
  for (const auto& [limit_file, usage_file] : kGroups) {
    const auto limit = number_in(limit_file);
    if (!limit) continue;
    // The group's usage counts the page cache, which the kernel gives back under pressure; so half
    // of the limit is taken to be usable at least.
    const std::int64_t left = *limit - number_in(usage_file).value_or(0);
    bytes = std::min(bytes, std::max(left, *limit / 2));
  }
  return bytes;
}

}  // namespace replayssm
