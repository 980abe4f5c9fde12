// Engines of the tests of captured steps. On the CPU, where nothing is captured, the same tests say
// that what they compare is equal for other reasons.
#pragma once

#include <string>

#include "cached_engine.h"
#include "drafters.h"

namespace replayssm {

struct GraphSetting {
  DeviceKind device = DeviceKind::cpu;
  DType state = DType::f32;
};

class OnEveryDevice : public testing::TestWithParam<GraphSetting> {
 protected:
  void SetUp() override {
    if (GetParam().device == DeviceKind::cpu) return;
    const std::string absent = no_gpu();
    if (!absent.empty()) GTEST_SKIP() << absent;
  }
  static EngineOptions options(bool graphs) {
    EngineOptions options = cached_options();
    if (GetParam().device == DeviceKind::cuda) options = on_gpu(options);
    options.state_type = GetParam().state;
    options.graphs = graphs;
    return options;
  }
};

inline const auto kGraphSettings = testing::Values(GraphSetting{DeviceKind::cpu, DType::f32},
                                                   GraphSetting{DeviceKind::cuda, DType::f32},
                                                   GraphSetting{DeviceKind::cuda, DType::bf16});

inline std::string name_of_setting(const testing::TestParamInfo<GraphSetting>& setting) {
  return std::string(name_of(setting.param.device)) + "_" +
         std::string(name_of(setting.param.state));
}

}  // namespace replayssm
