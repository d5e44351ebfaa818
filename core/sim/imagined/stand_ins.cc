#include "core/sim/imagined/stand_ins.h"

#include <ATen/core/List.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/TensorImpl.h>

#include <cstring>
#include <optional>

namespace tandem {
namespace sim {
namespace {

using Kind = OperatorTraits::Kind;

// Zeros, so that kernels which read them (indices, class numbers) find
// something valid.
at::Tensor Make(const at::Tensor& original, c10::DeviceType type) {
  at::Tensor made = at::empty_strided(
      original.sizes(), original.strides(),
      at::TensorOptions().dtype(original.scalar_type()).device(type));
  if (type == c10::DeviceType::CPU && made.storage().nbytes() > 0) {
    std::memset(made.storage().mutable_data(), 0, made.storage().nbytes());
  }
  if (original.unsafeGetTensorImpl()->is_wrapped_number()) {
    made.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return made;
}

bool Stays(const at::Tensor& original, c10::DeviceType type) {
  return original.device().is_cpu() &&
         (type == c10::DeviceType::CPU || original.dim() == 0);
}

}  // namespace

at::Tensor StandIns::For(const at::Tensor& original, c10::DeviceType type) {
  at::Tensor made;
  if (original.defined()) {
    for (const auto& [before, its] : made_) {
      if (before.is_same(original)) made = its;
    }
    if (!made.defined()) {
      made = Stays(original, type) ? original : Make(original, type);
      made_.emplace_back(original, made);
    }
  }
  tensors.push_back(made);
  sizes.push_back(made.defined() ? made.sizes().vec() : std::vector<int64_t>());
  return made;
}

c10::IValue StandIns::For(const c10::IValue& original, Kind kind,
                          c10::DeviceType type) {
  if (original.isTensor()) return For(original.toTensor(), type);
  if (kind == Kind::kTensorList && original.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& each : original.toTensorVector()) {
      list.push_back(For(each, type));
    }
    return list;
  }
  if (kind == Kind::kOptionalTensorList && original.isList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& each : original.toListRef()) {
      list.push_back(each.isTensor()
                         ? std::make_optional(For(each.toTensor(), type))
                         : std::nullopt);
    }
    return list;
  }
  if (kind == Kind::kListOfTensorLists && original.isList()) {
    c10::List<c10::List<at::Tensor>> lists;
    for (const c10::IValue& each : original.toListRef()) {
      lists.push_back(For(each, Kind::kTensorList, type).toTensorList());
    }
    return lists;
  }
  if (original.isDevice()) return c10::Device(type);
  // Whatever is drawn, nobody looks at it.
  if (kind == Kind::kGenerator) return c10::IValue();
  return original;
}

StandIns::StandIns(const OperatorTraits& traits,
                   const torch::jit::Stack& originals, c10::DeviceType type)
    : arguments(originals) {
  for (const auto& argument : traits.arguments) {
    c10::IValue& value = arguments[argument.index];
    value = For(value, argument.kind, type);
  }
}

}  // namespace sim
}  // namespace tandem
