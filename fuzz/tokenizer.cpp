// Any bytes through the tokenizer: encoding loses nothing but what NFC and repair change, no
// ordinary text becomes an added token, and streaming decodes to the same text as decoding at once.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "source_dir.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

const replayssm::Tokenizer& tokenizer() {
  static const replayssm::Tokenizer loaded =
      replayssm::Tokenizer::load(replayssm::source_dir() / "tests/data/text/qwen35").value();
  return loaded;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  std::string expected;
  replayssm::append_nfc(replayssm::repaired_utf8(bytes), expected);

  const std::vector<replayssm::TokenId> ids = tokenizer().encode(bytes);
  require(tokenizer().decode(ids) == expected);
  for (const replayssm::TokenId id : ids) require(!tokenizer().is_added(id));
  require(tokenizer().encode(replayssm::RenderedPrompt{{bytes, false}}) == ids);
  const std::size_t cut = size / 2;
  require(tokenizer().encode(replayssm::RenderedPrompt{{bytes.substr(0, cut), false},
                                                       {bytes.substr(cut), false}}) == ids);

  // Bytes as ids: any sequence of tokens.
  std::vector<replayssm::TokenId> any;
  for (const char byte : bytes) {
    any.push_back(static_cast<unsigned char>(byte) * 7 % (tokenizer().size() + 2) - 1);
  }
  for (const bool skip_special : {false, true}) {
    replayssm::Detokenizer detokenizer(tokenizer(), skip_special);
    std::string streamed;
    for (const replayssm::TokenId id : any) {
      const std::string delta = detokenizer.push(id);
      require(replayssm::is_utf8(delta));
      streamed += delta;
    }
    require(streamed + detokenizer.finish() == tokenizer().decode(any, skip_special));
  }
  return 0;
}
