// Thousands of small changes to a valid safetensors file: each is read or refused, none crashes,
// and whatever is read lies within the file. Seeded, so that a failure can be repeated; of most use
// under the address sanitizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>

#include "model/safetensors.h"
#include "test_checkpoint.h"

namespace replayssm {
namespace {

constexpr int kRounds = 20'000;
constexpr std::size_t kLengthBytes = 8;

std::string small_file() {
  EditableTensors tensors;
  tensors["embed"] = {"BF16", {4, 3}, std::vector<std::byte>(24)};
  tensors["layers.0.a"] = {"F32", {2, 1, 4}, std::vector<std::byte>(32)};
  tensors["layers.0.b"] = {"F16", {5}, std::vector<std::byte>(10)};
  tensors["scalar"] = {"I64", {}, std::vector<std::byte>(8)};
  tensors["empty"] = {"U8", {0}, {}};
  return safetensors_text(tensors);
}

class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : random_(seed) {}

  std::string mutate(std::string file) {
    for (int changes = 1 + below(3); changes > 0 && !file.empty(); --changes) change(file);
    return file;
  }

 private:
  int below(std::size_t bound) {
    return static_cast<int>(std::uniform_int_distribution<std::size_t>(0, bound - 1)(random_));
  }

  void change(std::string& file) {
    // What JSON and the format give meaning to.
    static const std::string kTokens[] = {"\"",          "{",       "}",
                                          "[",           "]",       ",",
                                          ":",           "-1",      "0",
                                          "1",           "9",       "18446744073709551615",
                                          "4294967296",  "1e308",   "null",
                                          "true",        "\\u0000", "\xff",
                                          "BF16",        "F64",     "data_offsets",
                                          "__metadata__"};
    const auto at = static_cast<std::size_t>(below(file.size()));
    switch (below(8)) {
      case 0:
        file[at] = static_cast<char>(below(256));
        break;
      case 1:
        file[at] = static_cast<char>(file[at] ^ (1 << below(8)));
        break;
      case 2:
        file.erase(at, 1 + static_cast<std::size_t>(below(16)));
        break;
      case 3:
        file.insert(at, kTokens[below(std::size(kTokens))]);
        break;
      case 4: {
        const std::string& token = kTokens[below(std::size(kTokens))];
        file.replace(at, std::min(token.size(), file.size() - at), token);
        break;
      }
      case 5:
        file.resize(at);
        break;
      case 6: {  // the header's length
        const auto length = static_cast<std::uint64_t>(below(2 * file.size()));
        std::memcpy(file.data(), &length, std::min(kLengthBytes, file.size()));
        break;
      }
      case 7: {  // a digit of an extent or an offset
        const std::size_t digit = file.find_first_of("0123456789", at);
        if (digit != std::string::npos) file[digit] = static_cast<char>('0' + below(10));
        break;
      }
    }
  }

  std::mt19937 random_;
};

TEST(SafetensorsFuzz, changed_files_are_read_within_bounds_or_refused) {
  const std::string valid = small_file();
  ASSERT_TRUE(parse_safetensors(std::as_bytes(std::span(valid.data(), valid.size())), "f").ok());
  int read = 0;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const std::string changed = Mutator(round).mutate(valid);
    // Exactly as large as the file, so that a sanitizer sees the first byte past it.
    const auto copy = std::make_unique<std::byte[]>(changed.size());
    std::memcpy(copy.get(), changed.data(), changed.size());
    const std::span<const std::byte> file(copy.get(), changed.size());
    const auto tensors = parse_safetensors(file, "f");
    if (!tensors) {
      ASSERT_NE(tensors.error().message, "") << "seed " << round;
      continue;
    }
    ++read;
    std::size_t data_bytes = 0;
    for (const StoredTensor& tensor : *tensors) {
      std::size_t bytes = size_of(tensor.type);
      for (const std::int64_t extent : tensor.shape) bytes *= static_cast<std::size_t>(extent);
      ASSERT_EQ(tensor.data.size(), bytes) << "seed " << round;
      ASSERT_GE(tensor.data.data(), file.data() + kLengthBytes) << "seed " << round;
      ASSERT_LE(tensor.data.data() + bytes, file.data() + file.size()) << "seed " << round;
      data_bytes += bytes;
    }
    ASSERT_LE(data_bytes, file.size() - kLengthBytes) << "seed " << round;
  }
  // Some changes, such as those to the data, leave a valid file.
  EXPECT_GT(read, kRounds / 100);
  EXPECT_LT(read, kRounds / 2);
}

}  // namespace
}  // namespace replayssm
