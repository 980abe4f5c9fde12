#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "core/aligned_buffer.h"
#include "resident_memory.h"

namespace replayssm {
namespace {

// The flags of the mapping that holds `address`, as /proc/self/smaps prints them; empty where the
// system has no such file.
std::string mapping_flags(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2) {
      inside = begin <= at && at < end;
    }
    if (inside && line.rfind("VmFlags:", 0) == 0) return line + " ";
  }
  return {};
}

TEST(HugePages, ALargeBufferAsksForThem) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) {
    GTEST_SKIP() << "the system has no transparent huge pages";
  }
  const AlignedBuffer<float> large(std::size_t{4} << 20);  // 16 MiB: some whole pages of 2 MiB
  const std::string flags = mapping_flags(large.data() + large.size() / 2);
  if (flags.empty()) GTEST_SKIP() << "the system does not say how memory is mapped";
  EXPECT_NE(flags.find(" hg "), std::string::npos) << flags;
}

TEST(AlignedBuffer, ALargeBufferTakesRoomOnlyWhereItIsWritten) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer allocates itself";
#endif
  const std::int64_t before = resident_bytes();
  if (before == 0) GTEST_SKIP() << "the system does not say how much memory is in use";
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  AlignedBuffer<unsigned char> buffer(kBytes);
  EXPECT_LT(resident_bytes() - before, std::int64_t{16} << 20);
  buffer[kBytes / 2] = 1;
  EXPECT_EQ(buffer[kBytes - 1], 0);
  EXPECT_LT(resident_bytes() - before, std::int64_t{16} << 20);
  AlignedBuffer<unsigned char> moved = std::move(buffer);
  EXPECT_EQ(moved[kBytes / 2], 1);
}

TEST(HugePages, ContentsAndSizesAreThoseOfAnyBuffer) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, (std::size_t{2} << 20) - 1, (std::size_t{6} << 20) + 3}) {
    AlignedBuffer<unsigned char> buffer(size);
    EXPECT_EQ(buffer.size(), size);
    std::size_t nonzero = 0;
    for (const unsigned char byte : buffer.span()) nonzero += byte != 0;
    EXPECT_EQ(nonzero, 0u);
    buffer.fill_bytes(7);
    if (size == 0) continue;
    EXPECT_EQ(buffer[size - 1], 7);
  }
}

}  // namespace
}  // namespace replayssm
