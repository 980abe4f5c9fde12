#include "text/byte_alphabet.h"

#include <array>

#include "text/utf8.h"

namespace replayssm {
namespace {

// Printable Latin-1 bytes stand for themselves; the other 68 are numbered from U+0100 in ascending
// order.
constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

constexpr char32_t kFirstStandIn = 0x100;
constexpr std::size_t kStandIns = 68;

constexpr std::array<char, kStandIns> kBytesWithStandIn = [] {
  std::array<char, kStandIns> bytes{};
  std::size_t count = 0;
  for (int byte = 0; byte < 256; ++byte) {
    if (!stands_for_itself(byte)) bytes[count++] = static_cast<char>(byte);
  }
  return bytes;
}();

}  // namespace

std::optional<char> byte_of_character(char32_t character) {
  if (character < kFirstStandIn) {
    if (!stands_for_itself(static_cast<int>(character))) return std::nullopt;
    return static_cast<char>(character);
  }
  if (character >= kFirstStandIn + kStandIns) return std::nullopt;
  return kBytesWithStandIn[character - kFirstStandIn];
}

std::string bytes_of_stored_token(std::string_view stored) {
  std::string bytes;
  bytes.reserve(stored.size());
  for (std::size_t at = 0; at < stored.size(); at += character_bytes(stored[at])) {
    const auto byte = byte_of_character(code_point_at(stored, at));
    if (!byte) return std::string(stored);
    bytes += *byte;
  }
  return bytes;
}

}  // namespace replayssm
