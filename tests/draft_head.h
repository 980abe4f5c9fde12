// The small checkpoint with a random draft head (mtp.*), which none of tests/data has.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/random_stream.h"
#include "test_checkpoint.h"

namespace replayssm {

// ratio1_float32_flat_tied: hidden size 64; its layer 3 is attention.
inline constexpr int kDraftHidden = 64;

inline void add_draft_head(const TestCheckpoint& checkpoint) {
  checkpoint.edit_tensors([](EditableTensors& tensors) {
    std::uint64_t seed = 100;
    const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
      EditableTensor& tensor = tensors[name];
      tensor.dtype = "F32";
      tensor.shape = shape;
      std::int64_t elements = 1;
      for (const std::int64_t length : shape) elements *= length;
      std::vector<float> values;
      ++seed;
      // A matrix keeps about the length of what it is multiplied with.
      const double scale =
          shape.size() == 1 ? 0.2 : 3.0 / std::sqrt(static_cast<double>(shape.back()));
      for (std::int64_t i = 0; i < elements; ++i) {
        const double uniform = uniform_at(seed, static_cast<std::uint64_t>(i));
        values.push_back(static_cast<float>(scale * (uniform - 0.5)));
      }
      tensor.data.resize(values.size() * sizeof(float));
      set_values(tensor, values);
    };
    add("mtp.fc.weight", {kDraftHidden, 2 * kDraftHidden});
    for (const char* norm : {"pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"}) {
      add(std::string("mtp.") + norm + ".weight", {kDraftHidden});
    }
    const std::string layer = "model.layers.3.";
    const EditableTensors copy = tensors;
    for (const auto& [name, tensor] : copy) {
      if (name.starts_with(layer)) add("mtp.layers.0." + name.substr(layer.size()), tensor.shape);
    }
  });
}

}  // namespace replayssm
