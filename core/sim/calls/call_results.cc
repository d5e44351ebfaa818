#include "core/sim/calls/call_results.h"

#include <ATen/core/List.h>
#include <ATen/ops/empty_strided.h>

#include <utility>
#include <vector>

namespace tandem {
namespace sim {
namespace {

using torch::jit::Stack;

// The results' tensors one by one; a list's follow each other. Empty if there
// are results of other kinds.
std::optional<std::vector<at::Tensor>> TensorsOf(const Stack& results) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& each : results) {
    if (!each.isTensor()) return std::nullopt;
    tensors.push_back(each.toTensor());
  }
  return tensors;
}

// Which of the arguments it is.
int ArgumentThatIs(const at::Tensor& tensor, const Stack& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isTensor() && arguments[i].toTensor().is_same(tensor)) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

// Does a result share an argument's memory, although it is another tensor?
bool SharesMemory(const at::Tensor& result, const Stack& arguments) {
  for (const c10::IValue& each : arguments) {
    if (each.isTensor() && each.toTensor().defined() &&
        each.toTensor().has_storage() && result.is_alias_of(each.toTensor())) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::optional<Geometries> GeometriesOf(const Stack& arguments,
                                       const Stack& results) {
  const auto tensors = TensorsOf(results);
  if (!tensors.has_value()) return std::nullopt;
  Geometries geometries;
  for (const at::Tensor& each : *tensors) {
    Geometry geometry;
    geometry.defined = each.defined();
    if (geometry.defined) {
      if (each._is_zerotensor()) return std::nullopt;  // has no memory
      geometry.argument = ArgumentThatIs(each, arguments);
      if (geometry.argument < 0 && SharesMemory(each, arguments)) {
        return std::nullopt;
      }
      geometry.sizes = each.sizes().vec();
      geometry.strides = each.strides().vec();
      geometry.dtype = each.scalar_type();
    }
    geometries.push_back(std::move(geometry));
  }
  return geometries;
}

Stack MakeResults(const Geometries& geometries, const Stack& arguments,
                  int8_t device) {
  Stack results;
  for (const Geometry& each : geometries) {
    if (!each.defined) {
      results.emplace_back(at::Tensor());
    } else if (each.argument >= 0) {
      results.push_back(arguments[each.argument]);
    } else {
      results.emplace_back(at::empty_strided(
          each.sizes, each.strides,
          at::TensorOptions()
              .dtype(each.dtype)
              .device(c10::Device(c10::DeviceType::PrivateUse1, device))));
    }
  }
  return results;
}

}  // namespace sim
}  // namespace tandem
