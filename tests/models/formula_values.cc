#include "tests/models/formula_values.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/match.h"
#include "core/model/layer_list.h"

namespace tandem {
namespace {

uint64_t Fnv1a(const std::string& name) {
  uint64_t value = 0xcbf29ce484222325;
  for (unsigned char byte : name) value = (value ^ byte) * 0x100000001b3;
  return value;
}

// splitmix64, as a double in [-1, 1).
double Uniform(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  x ^= x >> 31;
  return static_cast<double>(x >> 40) / (1 << 23) - 1;
}

struct Range {
  double offset;
  double scale;
};

Range FormulaRange(const std::string& name, const at::Tensor& values) {
  if (name == "input") return {0, 1};
  if (absl::EndsWith(name, "running_var")) return {1, 0.5};
  if (values.dim() > 1) {
    return {0, std::sqrt(6.0 / (values.numel() / values.size(0)))};
  }
  if (absl::EndsWith(name, "weight")) return {0.5, 0.25};
  return {0, 0.125};
}

}  // namespace

void FillByFormula(const std::string& name, const at::Tensor& values) {
  const uint64_t hash = Fnv1a(name);
  const Range range = FormulaRange(name, values);
  float* data = values.data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    data[i] =
        static_cast<float>(range.offset + range.scale * Uniform(hash + i));
  }
}

void FillByFormula(const LayerList& layers) {
  for (const auto& item : NamedParameters(layers)) {
    FillByFormula(item.first, item.second);
  }
  for (const auto& item : NamedBuffers(layers)) {
    if (item.second.is_floating_point()) {
      FillByFormula(item.first, item.second);
    }
  }
}

void FillByFormula(const LayerList& layers, at::ScalarType dtype) {
  FillByFormula(layers);
  NamedTensors tensors = NamedParameters(layers);
  for (auto& buffer : NamedBuffers(layers)) tensors.push_back(buffer);
  for (auto& item : tensors) {
    if (!item.second.is_floating_point()) continue;
    item.second.set_data(item.second.to(dtype));
  }
}

}  // namespace tandem
