#include "core/sim/calls/queued_call.h"

#include <ATen/core/List.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>

#include <memory>
#include <utility>
#include <vector>

#include "core/sim/calls/call_aliases.h"
#include "core/sim/calls/call_signature.h"
#include "core/sim/calls/operator_call.h"
#include "core/sim/memory/block.h"
#include "core/sim/streams/streams.h"

namespace tandem {
namespace sim {
namespace {

using torch::jit::Stack;

// The results' tensors one by one; a list's follow each other. Empty if there
// are results of other kinds.
std::optional<std::vector<at::Tensor>> ResultTensors(const Stack& results) {
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

std::optional<Geometries> ResultGeometries(const Stack& arguments,
                                           const Stack& results) {
  const auto tensors = ResultTensors(results);
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

namespace {

Stack Top(const Stack& stack, size_t count) {
  return Stack(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
}

void ReplaceTop(Stack& stack, size_t dropped, Stack added) {
  stack.resize(stack.size() - dropped);
  for (c10::IValue& each : added) stack.push_back(std::move(each));
}

// What the queue runs.
struct QueuedWork {
  const OperatorTraits* traits;
  std::shared_ptr<OperatorCall> call;
  Stack arguments;                        // as CPU tensors
  std::vector<at::Tensor> result_memory;  // CPU; undefined: an argument's

  void Run() {
    Stack stack = std::move(arguments);
    call->RunKernel(stack);
    const at::AutoDispatchBelowADInplaceOrView below;
    for (size_t i = 0; i < result_memory.size(); ++i) {
      if (!result_memory[i].defined()) continue;
      const at::Tensor& made = stack[i].toTensor();
      TORCH_CHECK(made.sizes() == result_memory[i].sizes(), traits->name,
                  " made a result of another shape than for the same "
                  "arguments before");
      result_memory[i].copy_(made);
    }
  }
};

// The arguments of a copy: where it reads and writes.
struct Copy {
  at::Tensor to;
  at::Tensor from;
  bool non_blocking;
};

// Must the host wait for the copy?
bool WaitsForCopy(const Copy& copy) {
  const at::Tensor& other = IsSim(copy.to) ? copy.from : copy.to;
  if (IsSim(other)) return false;
  return !copy.non_blocking || !other.is_pinned();
}

c10::Stream TensorStream(const at::Tensor& tensor) {
  return CurrentStream(tensor.device().index());
}

void QueueCopy(const c10::OperatorHandle& op, const OperatorTraits& traits,
               Stack* stack) {
  const Stack arguments = Top(*stack, traits.argument_count);
  const Copy copy = {arguments[0].toTensor(), arguments[1].toTensor(),
                     arguments[2].toBool()};
  const c10::Stream runs_on =
      TensorStream(IsSim(copy.from) ? copy.from : copy.to);
  const bool between = IsSim(copy.from) && IsSim(copy.to);
  auto call = std::make_shared<OperatorCall>(op, traits);
  call->TakeArguments(*stack);
  auto work = std::make_shared<QueuedWork>(
      QueuedWork{&traits, call, Top(*stack, traits.argument_count), {}});
  Event may_write;
  if (between) {
    RecordEvent(may_write, TensorStream(copy.to));
    HoldStream(may_write, runs_on);
  }
  Push(runs_on, [work] { work->Run(); });
  if (between) {
    Event written;
    RecordEvent(written, runs_on);
    HoldStream(written, TensorStream(copy.to));
  }
  if (WaitsForCopy(copy)) {
    CountHostWait(IsSim(copy.from) ? "copy to the host" : "copy from the host");
    Synchronise(runs_on);
  }
  ReplaceTop(*stack, traits.argument_count, {arguments[0]});
}

// After everything that the stream has queued.
void RunDrained(OperatorCall& call, Stack* stack) {
  Synchronise(CurrentStream(call.device()));
  call.RunKernel(*stack);
  call.GiveResults(*stack);
}

bool MustRunNow(const OperatorTraits& traits) {
  return traits.depends_on_data || traits.changes_storage ||
         !traits.returns_tensors_alone;
}

void Queue(const OperatorTraits& traits, std::shared_ptr<OperatorCall> call,
           const Geometries& geometries, const Stack& arguments, Stack* stack) {
  Stack results = MakeResults(geometries, arguments, call->device());
  auto work = std::make_shared<QueuedWork>(
      QueuedWork{&traits, call, Top(*stack, traits.argument_count), {}});
  for (size_t i = 0; i < geometries.size(); ++i) {
    const bool is_new = geometries[i].defined && geometries[i].argument < 0;
    work->result_memory.push_back(is_new ? HostAlias(results[i].toTensor())
                                         : at::Tensor());
  }
  ReplaceTop(*stack, traits.argument_count, std::move(results));
  Push(CurrentStream(call->device()), [work] { work->Run(); });
}

}  // namespace

void CallNow(const c10::OperatorHandle& op, const OperatorTraits& traits,
             Stack* stack) {
  OperatorCall call(op, traits);
  call.TakeArguments(*stack);
  call.RunKernel(*stack);
  call.GiveResults(*stack);
}

void CallQueued(const c10::OperatorHandle& op, const OperatorTraits& traits,
                Stack* stack) {
  if (traits.is_view) return CallNow(op, traits, stack);
  if (traits.mixes_devices) return QueueCopy(op, traits, stack);
  const Stack arguments = Top(*stack, traits.argument_count);
  auto call = std::make_shared<OperatorCall>(op, traits);
  call->TakeArguments(*stack);
  if (traits.depends_on_data) CountHostWait(traits.name);
  if (MustRunNow(traits)) return RunDrained(*call, stack);
  const auto signature = CallSignature(traits, arguments);
  if (!signature.has_value()) return RunDrained(*call, stack);
  const Geometries* known = Remembered(*signature);
  if (known != nullptr) {
    return Queue(traits, call, *known, arguments, stack);
  }
  RunDrained(*call, stack);
  // An argument that has another shape now is the host's work each time.
  if (CallSignature(traits, arguments) != signature) return;
  auto found = ResultGeometries(arguments, Top(*stack, traits.return_count));
  if (!found.has_value()) return;
  Remember(*signature, *std::move(found));
  EndQueuesBeforeStaticObjects();
}

}  // namespace sim
}  // namespace tandem
