#include "model/quantisation.h"

#include <algorithm>

#include "model/float8.h"
#include "model/json_file.h"

namespace replayssm {
namespace {

std::string_view without_prefix(std::string_view module) {
  for (const std::string_view prefix : {"model.", "language_model.", "model."}) {
    if (module.starts_with(prefix)) module.remove_prefix(prefix.size());
  }
  return module;
}

Status expect_text(const Fields& fields, std::string_view key, std::string_view accepted,
                   Presence presence) {
  std::string value(accepted);
  REPLAYSSM_TRY(fields.text(key, value, presence));
  if (value != accepted) return fields.refuse_field(key, accepted);
  return {};
}

}  // namespace

bool Quantisation::excludes(std::string_view module) const {
  module = without_prefix(module);
  return std::any_of(excluded.begin(), excluded.end(), [module](const std::string& entry) {
    const std::string_view name = without_prefix(entry);
    if (module.size() <= name.size()) return module == name;
    if (module.starts_with(name) && module[name.size()] == '.') return true;
    return module.ends_with(name) && module[module.size() - name.size() - 1] == '.';
  });
}

Status read_quantisation(const Fields& fields, Quantisation& out) {
  if (!fields.has("quantization_config")) return {};
  const auto config = fields.object("quantization_config");
  if (!config) return config.error();
  REPLAYSSM_TRY(expect_text(*config, "quant_method", "fp8", Presence::required));
  REPLAYSSM_TRY(expect_text(*config, "fmt", "e4m3", Presence::optional));
  REPLAYSSM_TRY(expect_text(*config, "activation_scheme", "dynamic", Presence::optional));
  const nlohmann::json block = nlohmann::json::array({kFloat8Block, kFloat8Block});
  if (config->at("weight_block_size") != block) {
    return config->refuse_field("weight_block_size", "[128, 128]");
  }
  if (config->has("modules_to_not_convert")) {
    const nlohmann::json& modules = config->at("modules_to_not_convert");
    const bool texts =
        modules.is_array() &&
        std::all_of(modules.begin(), modules.end(), [](const auto& m) { return m.is_string(); });
    if (!texts) return config->refuse_field("modules_to_not_convert", "a list of module names");
    for (const auto& module : modules) out.excluded.push_back(module.get<std::string>());
  }
  out.float8_blocks = true;
  return {};
}

}  // namespace replayssm
