#include "model/model.h"

#include <utility>

#include "model/decoder.h"
#include "model/weights.h"

namespace replayssm {

Result<std::unique_ptr<Model>> Model::load(const std::filesystem::path& directory,
                                           const ModelOptions& options, ThreadPool& pool,
                                           LinearOps& ops) {
  Result<ModelConfig> config = load_config(directory);
  if (!config) return config.error();
  Result<Weights> weights = options.load_format == LoadFormat::dummy
                                ? random_weights(*config, options.draft_head)
                                : load_weights(directory, *config, options.draft_head);
  if (!weights) return weights.error();
  return make_decoder(*config, std::move(*weights), options, pool, ops);
}

}  // namespace replayssm
