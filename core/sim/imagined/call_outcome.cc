#include "core/sim/imagined/call_outcome.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/TensorImpl.h>

#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/meta/operator_flops.h"
#include "core/sim/calls/call_signature.h"

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
    for (const auto& [before, known] : made_) {
      if (before.is_same(original)) made = known;
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

namespace {

using torch::jit::Stack;

double TensorBytes(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<double>(tensor.nbytes()) : 0;
}

// Which of the call's tensors it is, or lies in.
void FindArgument(const at::Tensor& tensor, const StandIns& call,
                  OutcomeTensor* found) {
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    const at::Tensor& each = call.tensors[i];
    if (!each.defined()) continue;
    if (each.is_same(tensor)) found->argument = static_cast<int>(i);
    if (each.storage().unsafeGetStorageImpl() ==
        tensor.storage().unsafeGetStorageImpl()) {
      found->viewed = static_cast<int>(i);
    }
  }
}

// The block that a tensor's storage lies in, of this recording.
int BlockNumber(const at::Tensor& tensor,
                const AllocationRecording& recording) {
  return recording.Find(tensor.storage().data_ptr().get_context()).value_or(-1);
}

OutcomeTensor ImaginedOutcome(const at::Tensor& tensor, const StandIns& call,
                              const AllocationRecording& recording) {
  OutcomeTensor outcome;
  outcome.defined = tensor.defined();
  if (!outcome.defined) return outcome;
  FindArgument(tensor, call, &outcome);
  outcome.block = BlockNumber(tensor, recording);
  outcome.storage_bytes = tensor.storage().nbytes();
  outcome.offset = tensor.storage_offset();
  outcome.sizes = tensor.sizes().vec();
  outcome.strides = tensor.strides().vec();
  outcome.dtype = tensor.scalar_type();
  return outcome;
}

OutcomeResult ImaginedOutcome(const c10::IValue& result, const StandIns& call,
                              const AllocationRecording& recording) {
  OutcomeResult outcome;
  if (result.isTensor()) {
    outcome.tensors = {ImaginedOutcome(result.toTensor(), call, recording)};
  } else if (result.isTensorList()) {
    outcome.is_list = true;
    for (const at::Tensor& each : result.toTensorVector()) {
      outcome.tensors.push_back(ImaginedOutcome(each, call, recording));
    }
  } else {
    outcome.value = result;
  }
  return outcome;
}

// Arguments that the kernel has resized.
std::vector<OutcomeTensor> ArgumentChanges(
    const StandIns& call, const AllocationRecording& recording) {
  std::vector<OutcomeTensor> changed;
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    const at::Tensor& each = call.tensors[i];
    if (!each.defined() || each.sizes() == at::IntArrayRef(call.sizes[i])) {
      continue;
    }
    changed.push_back(ImaginedOutcome(each, call, recording));
    changed.back().argument = static_cast<int>(i);
  }
  return changed;
}

CallOutcome Run(const c10::OperatorHandle& op, const OperatorTraits& traits,
                const Stack& arguments, c10::DispatchKey key) {
  StandIns call(traits, arguments,
                key == c10::DispatchKey::Meta ? c10::DeviceType::Meta
                                              : c10::DeviceType::CPU);
  Stack stack = call.arguments;
  const AllocationRecording recording;
  const at::AutoDispatchBelowADInplaceOrView below;
  op.redispatchBoxed(c10::DispatchKeySet(key), &stack);
  CallOutcome outcome;
  outcome.events = recording.events();
  for (const AllocationEvent& each : outcome.events) {
    outcome.blocks += each.taken ? 1 : 0;
  }
  for (const c10::IValue& each : stack) {
    outcome.results.push_back(ImaginedOutcome(each, call, recording));
  }
  outcome.changed = ArgumentChanges(call, recording);
  return outcome;
}

// The outcome of a call that only writes to arguments: they themselves.
std::optional<CallOutcome> WritesAlone(const c10::OperatorHandle& op,
                                       const Stack& arguments) {
  CallOutcome outcome;
  for (const c10::Argument& each : op.schema().returns()) {
    if (each.alias_info() == nullptr || !each.alias_info()->isWrite()) {
      return std::nullopt;
    }
    int tensor = 0;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const c10::AliasInfo* const alias =
          op.schema().arguments()[i].alias_info();
      if (alias != nullptr && *alias == *each.alias_info() &&
          arguments[i].isTensor()) {
        outcome.results.emplace_back();
        outcome.results.back().tensors.emplace_back();
        outcome.results.back().tensors[0].defined = true;
        outcome.results.back().tensors[0].argument = tensor;
        break;
      }
      tensor += static_cast<int>(ArgumentTensors({arguments[i]}).size());
    }
  }
  if (outcome.results.size() != op.schema().returns().size()) {
    return std::nullopt;
  }
  return outcome;
}

CallOutcome OfLarge(const c10::OperatorHandle& op, const OperatorTraits& traits,
                    const Stack& arguments, size_t bytes) {
  if (op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) {
    try {
      return Run(op, traits, arguments, c10::DispatchKey::Meta);
    } catch (const c10::Error&) {
      // It looks at values, or has operators within that have no such kernel.
    }
  }
  if (auto outcome = WritesAlone(op, arguments)) return *std::move(outcome);
  TORCH_CHECK_NOT_IMPLEMENTED(
      bytes <= kMostRun, "imagined devices cannot tell what ", traits.name,
      " gives for ", bytes,
      " bytes of arguments: LibTorch has no shapes for it without running it");
  return Run(op, traits, arguments, c10::DispatchKey::CPU);
}

CallOutcome Find(const c10::OperatorHandle& op, const OperatorTraits& traits,
                 const Stack& arguments) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      traits.has_cpu_kernel, "simulated devices run CPU kernels, and ",
      traits.name, " has none; move its inputs to the CPU");
  size_t bytes = 0;
  for (const at::Tensor& each : ArgumentTensors(arguments)) {
    if (each.defined()) bytes += each.nbytes();
  }
  CallOutcome outcome = bytes <= kRunAnyway
                            ? Run(op, traits, arguments, c10::DispatchKey::CPU)
                            : OfLarge(op, traits, arguments, bytes);
  outcome.flops = OperatorFlops(op.operator_name().name, arguments);
  outcome.bytes = static_cast<double>(bytes);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* const alias = op.schema().arguments()[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    for (const at::Tensor& each : ArgumentTensors({arguments[i]})) {
      outcome.bytes += TensorBytes(each);
    }
  }
  for (const OutcomeResult& result : outcome.results) {
    for (const OutcomeTensor& each : result.tensors) {
      if (each.block >= 0) {
        outcome.bytes += static_cast<double>(each.storage_bytes);
      }
    }
  }
  return outcome;
}

using OutcomePtr = std::shared_ptr<const CallOutcome>;

// So many outcomes are known, then all are forgotten: signatures of a text that
// grows never end.
constexpr size_t kMostKnown = 1 << 16;

struct Known {
  std::mutex mutex;
  std::unordered_map<std::string, OutcomePtr> outcomes;
};

Known& AllKnown() {
  static auto* known = new Known;
  return *known;
}

}  // namespace

std::vector<at::Tensor> ArgumentTensors(const Stack& arguments) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& each : arguments) {
    if (each.isTensor()) tensors.push_back(each.toTensor());
    if (!each.isList() || each.isIntList() || each.isDoubleList()) continue;
    const c10::ArrayRef<c10::IValue> list = each.toListRef();
    for (const at::Tensor& one :
         ArgumentTensors(Stack(list.begin(), list.end()))) {
      tensors.push_back(one);
    }
  }
  return tensors;
}

OutcomePtr ImaginedOutcome(const c10::OperatorHandle& op,
                           const OperatorTraits& traits,
                           const Stack& arguments) {
  const std::optional<std::string> signature = CallSignature(traits, arguments);
  if (!signature.has_value()) {
    return std::make_shared<CallOutcome>(Find(op, traits, arguments));
  }
  {
    const std::lock_guard<std::mutex> lock(AllKnown().mutex);
    const auto found = AllKnown().outcomes.find(*signature);
    if (found != AllKnown().outcomes.end()) return found->second;
  }
  auto outcome = std::make_shared<CallOutcome>(Find(op, traits, arguments));
  const std::lock_guard<std::mutex> lock(AllKnown().mutex);
  auto& outcomes = AllKnown().outcomes;
  if (outcomes.size() >= kMostKnown) outcomes.clear();
  return outcomes.emplace(*signature, std::move(outcome)).first->second;
}

}  // namespace sim
}  // namespace tandem
