#include "parallel/ddp/replica.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <glog/logging.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/context/compute_context.h"
#include "core/precision/autocast.h"
#include "core/precision/mixed_precision.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "parallel/ddp/logging.h"
#include "parallel/ddp/model_state.h"
#include "parallel/ddp/option_checks.h"
#include "parallel/ddp/reducer.h"
#include "parallel/ddp/replica_join_hook.h"
#include "parallel/ddp/replica_parameters.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem {
namespace {

// Whether what autograd is doing will bring a gradient to any of these. Not
// torch::autograd::grad, which hands gradients over instead.
bool GathersAny(const std::vector<torch::autograd::Node*>& accumulators) {
  const auto* nodes = torch::autograd::get_current_graph_task_exec_info();
  if (nodes == nullptr || nodes->empty()) return true;  // all are executed
  return absl::c_any_of(accumulators, [&](torch::autograd::Node* accumulator) {
    const auto found = nodes->find(accumulator);
    return found != nodes->end() && found->second.needed_;
  });
}

std::vector<torch::autograd::Node*> Accumulators(
    const FlatBufferList& buffers) {
  std::vector<torch::autograd::Node*> accumulators;
  for (const FlatBuffer* buffer : buffers) {
    for (const FlatSlot& slot : buffer->slots()) {
      accumulators.push_back(
          torch::autograd::impl::grad_accumulator(slot.parameter).get());
    }
  }
  return accumulators;
}

// Parameters and buffers that all ranks have alike.
NamedTensors Alike(const DistributedDataParallelOptions& options,
                   const NamedTensors& parameters,
                   const NamedTensors& buffers) {
  NamedTensors alike;
  for (const NamedTensors* part : {&parameters, &buffers}) {
    for (const auto& each : *part) {
      if (absl::c_linear_search(options.parameters_to_ignore, each.first)) {
        continue;
      }
      alike.push_back(each);
    }
  }
  return alike;
}

}  // namespace

NoSyncGuard::NoSyncGuard(std::shared_ptr<Reducer> reducer)
    : reducer_(std::move(reducer)), before_(reducer_->synchronise()) {
  reducer_->set_synchronise(false);
}

NoSyncGuard::~NoSyncGuard() {
  if (reducer_ != nullptr) reducer_->set_synchronise(before_);
}

Replica::Replica(Communicator& group,
                 const DistributedDataParallelOptions& options)
    : group_(group),
      options_(options),
      times_(std::make_unique<StepTimes>()),
      logging_(std::make_unique<DdpLoggingData>()) {}

Replica::~Replica() = default;

absl::Status Replica::Prepare(const NamedTensors& all_parameters,
                              const NamedTensors& buffers) {
  TANDEM_RETURN_IF_ERROR(CheckDdpOptions(options_, all_parameters, buffers));
  options_ = WithFirstNames(options_, all_parameters);
  const NamedTensors parameters = UnderFirstNames(all_parameters);
  if (options_.init_sync) {
    TANDEM_RETURN_IF_ERROR(
        CheckSameModel(Alike(options_, parameters, buffers), group_));
  }
  if (!parameters.empty()) {
    device_type_ = parameters.front().second.device().type();
  }
  if (options_.mixed_precision.buffer_dtype) {
    CastBuffers(buffers, *options_.mixed_precision.buffer_dtype);
  }
  ReplicaParameterOptions flat;
  flat.ddp = options_;
  TANDEM_ASSIGN_OR_RETURN(
      parameters_,
      ReplicaParameters::Create(parameters, buffers, std::move(flat), &group_));
  if (options_.init_sync) {
    TANDEM_RETURN_IF_ERROR(
        parameters_->TakeFrom(/*root=*/0, [] { return "initial values"; }));
  }
  reducer_ = parameters_->MakeReducer([this] { OnBackwardBegun(); });
  if (options_.mixed_precision.reduce_dtype) {
    const absl::Status set =
        reducer_->SetHook(CompressHook(*options_.mixed_precision.reduce_dtype));
    CHECK(set.ok()) << set;  // the first hook
  }
  accumulators_ = std::make_shared<const std::vector<torch::autograd::Node*>>(
      Accumulators(parameters_->averaged()));
  DescribeReplica(options_, group_, parameters_->averaged(), logging_.get());
  return absl::OkStatus();
}

// Ranks' backwards are paired by their order: one that is left out on one rank
// alone pairs all that follow wrongly, in silence.
void Replica::CountForwards() {
  const int forwards = std::exchange(forwards_, 0);
  LOG_IF(WARNING, most_forwards_ > 0 && forwards > most_forwards_)
      << "step " << reducer_->steps() + 1 << " on rank "
      << group_.NameOf(group_.rank()) << " has had " << forwards
      << " forwards with gradients before its backward, where "
      << most_forwards_
      << " was usual: if a Backward was left out, and not on every rank, "
         "gradients of different steps are averaged from here on; a forward "
         "that needs none is called under at::NoGradGuard";
  most_forwards_ = std::max(most_forwards_, forwards);
}

// Within autograd's engine, which takes care of what is to be done at the end
// of the backward under way.
void Replica::OnBackwardBegun() {
  CountForwards();
  if (join_ != nullptr) {
    const absl::Status fits = join_->CheckBackward();
    TORCH_CHECK(fits.ok(), fits.message());
  }
  torch::autograd::Engine::get_default_engine().queue_callback([this] {
    const int64_t steps = reducer_->steps();
    const absl::Status status = reducer_->Finish();
    TORCH_CHECK(status.ok(), status.message());
    if (reducer_->steps() == steps) return;  // no_sync
    times_->EndStep(reducer_->steps(), reducer_->moments());
    times_->Note(/*waits=*/false, logging_.get());
  });
}

bool Replica::IsComputedAgain() const {
  const auto microbatch = MicrobatchScope::Current();
  return microbatch.has_value() && microbatch->is_recomputed &&
         reducer_->is_in_backward();
}

absl::Status Replica::BeforeForward() {
  if (at::GradMode::is_enabled()) {
    if (join_ != nullptr) {
      TANDEM_RETURN_IF_ERROR(join_->Announce(reducer_->synchronise()));
    }
    TANDEM_RETURN_IF_ERROR(reducer_->PrepareForForward());
    ++forwards_;
    if (options_.broadcast_buffers && reducer_->synchronise()) {
      TANDEM_RETURN_IF_ERROR(
          ExplainEarlyEnd(BroadcastBuffers(), reducer_->steps()));
    }
  }
  times_->BeginForward(reducer_->buckets().device());
  return absl::OkStatus();
}

absl::Status Replica::BroadcastBuffers() {
  return parameters_->BroadcastBuffers(join_ == nullptr ? 0 : join_->root());
}

AutocastGuard Replica::Precision() const {
  return AutocastGuard(device_type_, options_.mixed_precision.param_dtype);
}

void Replica::AfterForward() {
  times_->EndForward(reducer_->buckets().device());
}

// Begins the backward that passes through `output`, and not one within it
// (re-entrant checkpointing), whose end would be taken for the whole's.
void Replica::WatchOutput(const at::Tensor& output) {
  if (!output.defined() || !output.requires_grad()) return;
  output.register_hook([reducer = std::weak_ptr<Reducer>(reducer_),
                        accumulators = accumulators_](const at::Tensor&) {
    const auto alive = reducer.lock();
    if (alive != nullptr && GathersAny(*accumulators)) alive->Begin();
  });
}

absl::Status Replica::InStep(absl::string_view what,
                             const absl::Status& status) const {
  return Annotate(status,
                  absl::StrCat(what, " of step ", reducer_->steps() + 1,
                               " on rank ", group_.NameOf(group_.rank())));
}

absl::Status Replica::Backward(const at::Tensor& loss) {
  const absl::Status status = CatchTorch([&] { loss.backward(); });
  // An error of the reducer itself came as an exception; this gives the
  // original.
  return status.ok() ? status : reducer_->Fail(InStep("backward", status));
}

absl::Status Replica::Backward(absl::FunctionRef<at::Tensor()> loss) {
  at::Tensor value;
  const absl::Status status = CatchTorch([&] { value = loss(); });
  if (!status.ok()) return reducer_->Fail(InStep("loss", status));
  return Backward(value);
}

absl::Status Replica::register_comm_hook(CommunicationHook hook) {
  if (reducer_->steps() > 0) {
    return absl::FailedPreconditionError(
        "a communication hook must be registered before the first step");
  }
  if (options_.mixed_precision.reduce_dtype) {
    return absl::InvalidArgumentError(
        "mixed_precision.reduce_dtype is a communication hook itself: leave it "
        "out, or do not register another");
  }
  TANDEM_RETURN_IF_ERROR(reducer_->SetHook(std::move(hook)));
  logging_->comm_hook = "user";
  return absl::OkStatus();
}

DdpLoggingData Replica::logging_data() const {
  times_->Note(/*waits=*/true, logging_.get());
  DdpLoggingData data = *logging_;
  DescribeBuckets(*reducer_, &data);
  return data;
}

const FlatBuffers& Replica::flat_buffers() const {
  return parameters_->flat_buffers();
}

FlatBufferList Replica::flat_buffers_of(int64_t group) const {
  return parameters_->of_group(group);
}

FlatBufferList Replica::averaged_flat_buffers() const {
  return parameters_->averaged();
}

FlatBufferList Replica::ignored_flat_buffers() const {
  return parameters_->ignored();
}

void Replica::ZeroGrad() {
  for (const auto& buffer : flat_buffers()) buffer->ZeroGrad();
}

}  // namespace tandem
