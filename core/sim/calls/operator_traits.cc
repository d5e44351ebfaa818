#include "core/sim/calls/operator_traits.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/intern.h"

namespace tandem {
namespace sim {
namespace {

using Kind = OperatorTraits::Kind;

// What OptionalType or ListType holds.
c10::TypePtr Inner(const c10::TypePtr& type, c10::TypeKind outer) {
  return type->kind() == outer ? type->containedType(0) : nullptr;
}

std::optional<Kind> KindOfList(const c10::TypePtr& element) {
  if (element->kind() == c10::TypeKind::TensorType) return Kind::kTensorList;
  const c10::TypePtr list = Inner(element, c10::TypeKind::ListType);
  if (list != nullptr && list->kind() == c10::TypeKind::TensorType) {
    return Kind::kListOfTensorLists;
  }
  const c10::TypePtr inner = Inner(element, c10::TypeKind::OptionalType);
  if (inner != nullptr && inner->kind() == c10::TypeKind::TensorType) {
    return Kind::kOptionalTensorList;
  }
  return std::nullopt;
}

std::optional<Kind> ArgumentKind(const c10::TypePtr& declared) {
  const c10::TypePtr held = Inner(declared, c10::TypeKind::OptionalType);
  const c10::TypePtr& type = held == nullptr ? declared : held;
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return Kind::kTensor;
    case c10::TypeKind::ListType:
      return KindOfList(type->containedType(0));
    case c10::TypeKind::StorageType:
      return Kind::kStorage;
    case c10::TypeKind::DeviceObjType:
      return Kind::kDevice;
    case c10::TypeKind::GeneratorType:
      return Kind::kGenerator;
    default:
      return std::nullopt;
  }
}

bool IsAmong(const std::string& name,
             std::initializer_list<const char*> operators) {
  return std::any_of(operators.begin(), operators.end(),
                     [&](const char* each) { return name == each; });
}

bool MixesDevices(const std::string& name) {
  return IsAmong(
      name, {"aten::copy_", "aten::_copy_from", "aten::_copy_from_and_resize"});
}

// Operators that take tensors of the CPU beside the device's, as on CUDA.
bool TakesCpuTensors(const std::string& name) {
  return absl::StartsWith(name, "aten::index") ||
         absl::StartsWith(name, "aten::_index_put_impl") ||
         absl::StartsWith(name, "aten::_unsafe_index") ||
         absl::StartsWith(name, "aten::_ctc_loss") ||
         absl::StartsWith(name, "aten::_fused_ad") ||
         absl::StartsWith(name, "aten::_fused_sgd");
}

}  // namespace

OperatorTraits::OperatorTraits(const c10::OperatorHandle& op)
    : argument_count(op.schema().arguments().size()),
      return_count(op.schema().returns().size()),
      has_cpu_kernel(
          op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) {
  const std::string& base = op.operator_name().name;
  const std::string& overload = op.operator_name().overload_name;
  // The schema's text goes when a library is unloaded.
  name = Intern(overload.empty() ? base : absl::StrCat(base, ".", overload));
  mixes_devices = MixesDevices(base);
  copies_from_first = mixes_devices && base != "aten::copy_";
  changes_storage = IsAmong(base, {"aten::set_", "aten::resize_"});
  takes_cpu_tensors = TakesCpuTensors(base);
  const auto& returns = op.schema().returns();
  is_view = std::any_of(returns.begin(), returns.end(), [](const auto& each) {
    return each.alias_info() != nullptr && !each.alias_info()->isWrite();
  });
  returns_tensors_alone =
      std::all_of(returns.begin(), returns.end(), [](const auto& each) {
        return each.type()->kind() == c10::TypeKind::TensorType;
      });
  shape_follows_reals = absl::StartsWith(base, "aten::arange") ||
                        absl::StartsWith(base, "aten::range");
  depends_on_data = op.hasTag(at::Tag::dynamic_output_shape) ||
                    op.hasTag(at::Tag::data_dependent_output);
  for (size_t i = 0; i < argument_count; ++i) {
    const c10::Argument& argument = op.schema().arguments()[i];
    const std::optional<Kind> kind = ArgumentKind(argument.real_type());
    if (!kind.has_value()) continue;
    arguments.push_back({i, *kind});
  }
}

}  // namespace sim
}  // namespace tandem
