#include "core/sim/imagined/imagined_call.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/device/memory_category.h"
#include "core/sim/calls/call_aliases.h"
#include "core/sim/calls/operator_call.h"
#include "core/sim/calls/queued_call.h"
#include "core/sim/imagined/call_outcome.h"
#include "core/sim/imagined/imagined_memory.h"
#include "core/sim/imagined/meters.h"

namespace tandem {
namespace sim {
namespace {

using torch::jit::Stack;

Stack Top(const Stack& stack, size_t count) {
  return Stack(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
}

// One call's memory, and what lies in it.
class Replay {
 public:
  Replay(const CallOutcome& outcome, const Stack& arguments, int8_t device,
         const char* made_by)
      : outcome_(outcome),
        tensors_(ArgumentTensors(arguments)),
        device_(device),
        made_by_(made_by) {}

  // In the kernel's order, so that the peak is its own.
  void TakeMemory() {
    std::vector<c10::DataPtr> blocks(static_cast<size_t>(outcome_.blocks));
    for (const AllocationEvent& each : outcome_.events) {
      blocks[static_cast<size_t>(each.block)] =
          each.taken ? ImagineMemory(each.bytes, device_,
                                     MemoryCategory::kTemporaries, made_by_)
                     : c10::DataPtr();
    }
    blocks_ = std::move(blocks);
  }

  void Change(const OutcomeTensor& after) {
    const at::Tensor& tensor = tensors_[static_cast<size_t>(after.argument)];
    c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    if (after.block >= 0) impl.set_storage_keep_dtype(ResultStorage(after));
    impl.set_sizes_and_strides(after.sizes, after.strides, after.offset);
  }

  c10::IValue Result(const OutcomeResult& result) {
    if (result.tensors.empty() && !result.is_list) return result.value;
    if (!result.is_list) return Tensor(result.tensors[0]);
    c10::List<at::Tensor> list;
    for (const OutcomeTensor& each : result.tensors) {
      list.push_back(Tensor(each));
    }
    return list;
  }

 private:
  at::Tensor Tensor(const OutcomeTensor& result) {
    if (!result.defined) return at::Tensor();
    if (result.argument >= 0) {
      return tensors_[static_cast<size_t>(result.argument)];
    }
    at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
        ResultStorage(result),
        c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
        c10::scalarTypeToTypeMeta(result.dtype));
    made.unsafeGetTensorImpl()->set_sizes_and_strides(
        result.sizes, result.strides, result.offset);
    return made;
  }

  c10::Storage ResultStorage(const OutcomeTensor& result) {
    if (result.viewed >= 0 && result.block < 0) {
      return tensors_[static_cast<size_t>(result.viewed)].storage();
    }
    if (result.block >= 0) {
      const auto made = storages_.find(result.block);
      if (made != storages_.end()) return made->second;
    }
    c10::Storage storage(c10::Storage::use_byte_size_t(), result.storage_bytes,
                         ResultMemory(result),
                         c10::GetAllocator(c10::DeviceType::PrivateUse1),
                         /*resizable=*/true);
    if (result.block >= 0) storages_[result.block] = storage;
    return storage;
  }

  c10::DataPtr ResultMemory(const OutcomeTensor& result) {
    if (result.block < 0) {
      return c10::DataPtr(nullptr,
                          c10::Device(c10::DeviceType::PrivateUse1, device_));
    }
    c10::DataPtr& data = blocks_[static_cast<size_t>(result.block)];
    RecategoriseImagined(data, CategoryOfResults());
    return std::move(data);
  }

  const CallOutcome& outcome_;
  const std::vector<at::Tensor> tensors_;
  const int8_t device_;
  const char* const made_by_;
  std::vector<c10::DataPtr> blocks_;
  std::map<int, c10::Storage> storages_;
};

// What a copy brings to the host are zeros.
void Copy(const OperatorTraits& traits, const Stack& arguments, Stack* stack) {
  const bool from_first = traits.copies_from_first;
  const at::Tensor to = arguments[from_first ? 1 : 0].toTensor();
  const at::Tensor from = arguments[from_first ? 0 : 1].toTensor();
  TORCH_CHECK(at::is_expandable_to(from.sizes(), to.sizes()), traits.name,
              ": a tensor of shape ", from.sizes(), " cannot become one of ",
              to.sizes());
  const at::Tensor& on_device = IsSim(to) ? to : from;
  CountWork(on_device.device().index(),
            {0, static_cast<double>(from.nbytes() + to.nbytes())});
  if (IsSim(to) && IsSim(from) && to.device() != from.device()) {
    CountCopy(to.device().index(), static_cast<double>(from.nbytes()));
  }
  if (!IsSim(to)) {
    const at::AutoDispatchBelowADInplaceOrView below;
    to.zero_();
  }
  stack->resize(stack->size() - traits.argument_count);
  stack->emplace_back(to);
}

}  // namespace

void CallImagined(const c10::OperatorHandle& op, const OperatorTraits& traits,
                  Stack* stack) {
  if (traits.is_view) return CallNow(op, traits, stack);
  const Stack arguments = Top(*stack, traits.argument_count);
  if (traits.mixes_devices) return Copy(traits, arguments, stack);
  OperatorCall call(op, traits);
  call.FindDevice(*stack);
  const std::shared_ptr<const CallOutcome> outcome =
      ImaginedOutcome(op, traits, arguments);
  Replay replay(*outcome, arguments, call.device(), traits.name);
  replay.TakeMemory();
  CountWork(call.device(), {outcome->flops, outcome->bytes});
  for (const OutcomeTensor& each : outcome->changed) replay.Change(each);
  stack->resize(stack->size() - traits.argument_count);
  for (const OutcomeResult& each : outcome->results) {
    stack->push_back(replay.Result(each));
  }
}

}  // namespace sim
}  // namespace tandem
