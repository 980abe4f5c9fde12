// Any bytes as a chat template, raw and as a string of the language's fragments: parsing and
// rendering end, with text or an error, and no byte of the request is ever trusted.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "text/chat_template.h"
#include "text/utf8.h"

namespace {

constexpr std::string_view kFragments[] = {"{{ ",
                                           " }}",
                                           "{% ",
                                           " %}",
                                           "{%- ",
                                           " -%}",
                                           "{# ",
                                           " #}",
                                           "if ",
                                           "else",
                                           "elif ",
                                           "endif",
                                           "for x in ",
                                           "endfor",
                                           "set ",
                                           "endset",
                                           "macro m(",
                                           "endmacro",
                                           "m(",
                                           "call ",
                                           "endcall",
                                           "filter ",
                                           "endfilter",
                                           "with ",
                                           "endwith",
                                           "raw",
                                           "endraw",
                                           "break",
                                           "continue",
                                           "x",
                                           "messages",
                                           "u",
                                           "[0]",
                                           "[::-1]",
                                           "[1:",
                                           "]",
                                           "(",
                                           ")",
                                           "{",
                                           "}",
                                           ".role",
                                           ".content",
                                           ".items()",
                                           ".split(",
                                           ".strip()",
                                           ".append(",
                                           "|",
                                           "join",
                                           "trim",
                                           "tojson",
                                           "sort",
                                           "map(",
                                           "upper",
                                           "list",
                                           "first",
                                           "length",
                                           "replace(",
                                           "default(",
                                           "selectattr(",
                                           "is ",
                                           "defined",
                                           "string",
                                           "not ",
                                           "in ",
                                           "and ",
                                           "or ",
                                           "==",
                                           "<",
                                           "~",
                                           "+",
                                           "-",
                                           "*",
                                           "//",
                                           "%",
                                           "**",
                                           ",",
                                           "=",
                                           ":",
                                           "'a'",
                                           "'%s'",
                                           "\"role\"",
                                           "1",
                                           "2.5",
                                           "true",
                                           "none",
                                           "range(3)",
                                           "namespace(a=",
                                           "loop.index",
                                           "loop.changed(",
                                           "caller()",
                                           "\n",
                                           "  ",
                                           "\xC3\xA9",
                                           "raise_exception('e')"};

void check(std::string_view source) {
  const auto made = replayssm::ChatTemplate::parse(source, {{"eos_token", "E"}});
  if (!made) return;
  // The request's text is upper case and no template fragment is.
  const nlohmann::ordered_json context = {
      {"u", "QZ"}, {"messages", {{{"role", "Q"}, {"content", "Z Q"}}, {{"role", "Z"}}}}};
  const auto prompt = made->render(context, 0);
  if (!prompt) return;
  for (const replayssm::PromptPart& part : *prompt) {
    if (part.text.empty() || !replayssm::is_utf8(part.text)) std::abort();
    if (part.trusted && source.find_first_of("QZqz") == source.npos &&
        part.text.find_first_of("QZqz") != part.text.npos) {
      std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check(bytes);
  std::string source;
  for (const char byte : bytes) {
    source += kFragments[static_cast<unsigned char>(byte) % std::size(kFragments)];
  }
  check(source);
  check("{{ " + source + " }}");
  return 0;
}
