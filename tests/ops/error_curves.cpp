// How wrong the outputs of each record and state format are along a sequence, against float64: one
// JSON array on standard output, an object a curve. Not a test; tools/error_budget.py draws it.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "ops/backends.h"
#include "ops/layer_memory.h"
#include "ops/oracle.h"

namespace replayssm::tests {
namespace {

constexpr int kTokens = 8192;
constexpr int kPart = 256;  // tokens of one point of a curve

struct Input {
  GateKind gate;
  const char* name;
  float mean_decay;
};

struct Format {
  Route route;
  DType state, correction;
  int block;  // 0: does not apply
};

constexpr Input kInputs[] = {{GateKind::gdn, "mild", 0.002f},
                             {GateKind::gdn, "moderate", 0.03f},
                             {GateKind::kda, "mild", 0.002f},
                             {GateKind::kda, "moderate", 0.03f}};

// A chunk gives the bits of decoding, replay and packed alike, and is quicker to run.
constexpr Format kFormats[] = {
    {Route::packed, DType::f32, DType::f32, 0},   {Route::packed, DType::bf16, DType::f32, 0},
    {Route::chunk, DType::f32, DType::f32, 8},    {Route::chunk, DType::f32, DType::f32, 16},
    {Route::chunk, DType::f32, DType::f32, 32},   {Route::chunk, DType::f32, DType::bf16, 16},
    {Route::chunk, DType::bf16, DType::f32, 16},  {Route::chunk, DType::bf16, DType::bf16, 8},
    {Route::chunk, DType::bf16, DType::bf16, 16}, {Route::chunk, DType::bf16, DType::bf16, 32}};

std::vector<float> outputs(const Tokens& tokens, const Format& format) {
  const OwnedOps owned = cpu_backend().make(2);
  LayerMemory memory(*owned.ops, tokens.shape,
                     FoldGeometry::make(format.block == 0 ? 16 : format.block, 1).value(),
                     {format.state, DType::bf16, format.correction}, 1, 1);
  memory.admit(0, 0);
  return run_step(memory, format.route, {{0, &tokens, 0, kTokens}}).front();
}

std::string curve(const Tokens& tokens, const std::vector<double>& expected, const Input& input,
                  const Format& format) {
  const std::vector<float> found = outputs(tokens, format);
  const auto error = [&](int from, int count) {
    const auto part = [&](const auto& values) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(from * tokens.out_stride());
      return std::vector<double>(begin,
                                 begin + static_cast<std::ptrdiff_t>(count * tokens.out_stride()));
    };
    return relative_error(part(found), part(expected));
  };
  std::string points;
  for (int at = 0; at < kTokens; at += kPart) {
    points += fmt::format("{}{:.4g}", at == 0 ? "" : ", ", error(at, kPart));
  }
  return fmt::format(
      R"({{"gate": "{}", "gates": "{}", "mean_log_gate": {}, "route": "{}", "state": "{}", )"
      R"("record": {}, "fold_block": {}, "tokens_a_point": {}, "error": {:.4g}, )"
      R"("second_1024": {:.4g}, "last_1024": {:.4g}, "errors": [{}]}})",
      input.gate == GateKind::gdn ? "gdn" : "kda", input.name, -input.mean_decay,
      format.block == 0 ? "packed" : "replay", name_of(format.state),
      format.block == 0 ? "null" : fmt::format("\"{}\"", name_of(format.correction)),
      format.block == 0 ? "null" : std::to_string(format.block), kPart, error(0, kTokens),
      error(1024, 1024), error(kTokens - 1024, 1024), points);
}

}  // namespace
}  // namespace replayssm::tests

int main() {
  using namespace replayssm::tests;
  const char* separator = "[";
  for (const Input& input : kInputs) {
    // Four heads, so that a curve is not the luck of one.
    const replayssm::HeadShape shape{input.gate, input.gate == replayssm::GateKind::gdn ? 1 : 4, 4};
    const Tokens tokens =
        make_tokens(shape, kTokens, 1, {.mean_decay = input.mean_decay, .bf16_values = true});
    const std::vector<double> expected = oracle(tokens);
    for (const Format& format : kFormats) {
      fmt::print("{}\n{}", separator, curve(tokens, expected, input, format));
      separator = ",";
    }
  }
  fmt::print("\n]\n");
}
