#include "core/sim/calls/queued_call.h"

#include <c10/core/DeviceGuard.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/sim/calls/call_aliases.h"
#include "core/sim/calls/call_results.h"
#include "core/sim/calls/call_signature.h"
#include "core/sim/calls/operator_call.h"
#include "core/sim/memory/block.h"
#include "core/sim/streams/host_waits.h"
#include "core/sim/streams/streams.h"

namespace tandem {
namespace sim {
namespace {

using torch::jit::Stack;

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

  // A captured one runs many times.
  void Run() const {
    Stack stack = arguments;
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

bool IsSim(const at::Tensor& tensor) {
  return tensor.device().type() == c10::DeviceType::PrivateUse1;
}

// Must the host wait for the copy?
bool WaitsForCopy(const Copy& copy) {
  const at::Tensor& other = IsSim(copy.to) ? copy.from : copy.to;
  if (IsSim(other)) return false;
  return !copy.non_blocking || !other.is_pinned();
}

c10::Stream StreamOf(const at::Tensor& tensor) {
  return CurrentStream(tensor.device().index());
}

// A capture knows of nothing that has not run by then, and gives the host no
// values.
void RefuseCaptured(const OperatorTraits& traits, int8_t device,
                    const char* why) {
  TORCH_CHECK(!IsCaptured(CurrentStream(device)), traits.name,
              " cannot be captured: ", why);
}

void QueueCopy(const c10::OperatorHandle& op, const OperatorTraits& traits,
               Stack* stack) {
  const Stack arguments = Top(*stack, traits.argument_count);
  const Copy copy = {arguments[0].toTensor(), arguments[1].toTensor(),
                     arguments[2].toBool()};
  const c10::Stream runs_on = StreamOf(IsSim(copy.from) ? copy.from : copy.to);
  const bool between = IsSim(copy.from) && IsSim(copy.to);
  if (WaitsForCopy(copy)) {
    RefuseCaptured(traits, runs_on.device_index(), "the host waits for it");
  }
  auto call = std::make_shared<OperatorCall>(op, traits);
  call->TakeArguments(*stack);
  auto work = std::make_shared<QueuedWork>(
      QueuedWork{&traits, call, Top(*stack, traits.argument_count), {}});
  Event may_write;
  if (between) {
    RecordEvent(may_write, StreamOf(copy.to));
    HoldStream(may_write, runs_on);
  }
  Push(runs_on, [work] { work->Run(); });
  if (between) {
    Event written;
    RecordEvent(written, runs_on);
    HoldStream(written, StreamOf(copy.to));
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

// Geometries of nothing, where a call is captured that has no results.
const Geometries* KnownOf(const OperatorTraits& traits,
                          const std::string& signature, int8_t device) {
  static const Geometries nothing;
  const Geometries* const known = Remembered(signature);
  const bool needs_none =
      traits.return_count == 0 && IsCaptured(CurrentStream(device));
  return known == nullptr && needs_none ? &nothing : known;
}

// Of a call whose out= arguments were resized.
std::string Grown(const std::string& signature) { return "grown " + signature; }

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
  if (MustRunNow(traits)) {
    RefuseCaptured(traits, call->device(),
                   "the host needs to know what it comes to");
    return RunDrained(*call, stack);
  }
  const auto signature = SignatureOf(traits, arguments);
  if (!signature.has_value()) return RunDrained(*call, stack);
  const Geometries* known = KnownOf(traits, *signature, call->device());
  if (known != nullptr) {
    return Queue(traits, call, *known, arguments, stack);
  }
  const Geometries* const grown =
      traits.has_out && IsCaptured(CurrentStream(call->device()))
          ? Remembered(Grown(*signature))
          : nullptr;
  if (grown != nullptr) {
    GrowOutputs(*grown, arguments);
    ReplaceTop(*stack, traits.argument_count, arguments);
    return CallQueued(op, traits, stack);
  }
  RefuseCaptured(traits, call->device(),
                 "it has not run for these shapes before, which is how "
                 "simulated devices get to know those of its results");
  RunDrained(*call, stack);
  // An argument that has another shape now is the host's work each time.
  const auto after = SignatureOf(traits, arguments);
  if (after != signature && !traits.has_out) return;
  auto found = GeometriesOf(arguments, Top(*stack, traits.return_count));
  if (!found.has_value()) return;
  // In a capture it cannot be: what came of it is known by then.
  if (after != signature) Remember(Grown(*signature), *found);
  Remember(*after, *std::move(found));
  EndQueuesBeforeStaticObjects();
}

}  // namespace sim
}  // namespace tandem
