#include "parallel/parameter_server/worker_strategy.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"

namespace tandem {
namespace {

ServedTensor Served(const std::string& name, const at::Tensor& tensor) {
  ServedTensor served;
  served.info = InfoOf(name, tensor);
  served.strides = tensor.strides().vec();
  return served;
}

}  // namespace

void ReplicaTensors::UpdateCopies() const {
  at::NoGradGuard no_grad;
  for (const auto& [copy, place] : copies) {
    copy.detach().copy_(trained[place]);
  }
}

ReplicaTensors TensorsOf(
    const Strategy& replica,
    const std::function<int64_t(const std::string&)>& group) {
  ReplicaTensors tensors;
  // A tied weight is trained once, be it one tensor or copies.
  const std::map<std::string, std::string> copies = replica.TiedCopies();
  std::map<std::string, size_t> place_of_name;
  std::map<const void*, size_t> place_of;
  for (const auto& [name, tensor] : replica.Parameters()) {
    ServedTensor served = Served(name, tensor);
    if (!tensor.requires_grad()) {
      tensors.layout.kept.push_back(std::move(served));
      tensors.kept.push_back(tensor);
      continue;
    }
    if (group) served.group = group(name);
    // The greatest place counts where a weight has several names.
    const auto add_alias = [&, name = name](size_t place) {
      tensors.layout.aliases.emplace_back(name, place);
      int64_t& greatest = tensors.layout.trained[place].group;
      greatest = std::max(greatest, served.group);
    };
    const auto copy = copies.find(name);
    if (copy != copies.end()) {
      const size_t place = place_of_name.at(copy->second);
      add_alias(place);
      tensors.copies.emplace_back(tensor, place);
      continue;
    }
    const auto [its, is_new] =
        place_of.emplace(tensor.unsafeGetTensorImpl(), tensors.trained.size());
    place_of_name[name] = its->second;
    if (!is_new) {
      add_alias(its->second);
      continue;
    }
    tensors.layout.trained.push_back(std::move(served));
    tensors.trained.push_back(tensor);
  }
  tensors.layout.frozen = tensors.kept.size();
  for (const auto& [name, tensor] : replica.Buffers()) {
    tensors.layout.kept.push_back(Served(name, tensor));
    tensors.kept.push_back(tensor);
  }
  return tensors;
}

WorkerStrategy::WorkerStrategy(std::unique_ptr<Strategy> replica,
                               ReplicaTensors tensors,
                               std::vector<Slice> slices)
    : replica_(std::move(replica)),
      tensors_(std::move(tensors)),
      slices_(std::move(slices)) {}

void WorkerStrategy::Connect(WorkerClient::Setup setup, bool in_step) {
  client_ = std::make_unique<WorkerClient>(std::move(setup));
  if (!in_step) return;
  replica_->SetMeanWeight(
      [this](double mine) { return client_->MeanWeight(step_ + 1, mine); });
}

absl::StatusOr<Score> WorkerStrategy::TrainStep(const Batch& batch,
                                                double learning_rate) {
  TANDEM_ASSIGN_OR_RETURN(const Score score, ComputeGradients(batch));
  TANDEM_RETURN_IF_ERROR(Update(learning_rate));
  return score;
}

absl::StatusOr<Score> WorkerStrategy::ComputeGradients(const Batch& batch) {
  TANDEM_ASSIGN_OR_RETURN(score_, replica_->ComputeGradients(batch));
  return score_;
}

absl::Status WorkerStrategy::PushAndPull(
    WorkerClient::StepPush push, const std::vector<at::Tensor>& gradients) {
  // The replica's step is over, without an update of its own.
  TANDEM_RETURN_IF_ERROR(replica_->SkipUpdate());
  alike_ = false;
  push.step = ++step_;
  push.score = {score_, AuxiliaryLosses(), NamedSums()};
  TANDEM_RETURN_IF_ERROR(client_->Push(push, gradients, tensors_.trained));
  return UpdateCopies();
}

absl::Status WorkerStrategy::UpdateCopies() const {
  return CatchTorch([&] { tensors_.UpdateCopies(); });
}

absl::Status WorkerStrategy::Update(double learning_rate) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& each : tensors_.trained) {
    gradients.push_back(each.grad());
  }
  WorkerClient::StepPush push;
  push.learning_rate = learning_rate;
  return PushAndPull(std::move(push), gradients);
}

absl::Status WorkerStrategy::SkipUpdate() {
  WorkerClient::StepPush push;
  push.skips = true;
  return PushAndPull(std::move(push),
                     std::vector<at::Tensor>(tensors_.trained.size()));
}

void WorkerStrategy::ResumeAt(int64_t steps) {
  step_ = steps;
  replica_->ResumeAt(steps);
}

absl::Status WorkerStrategy::Synchronise() {
  if (alike_) return absl::OkStatus();
  alike_ = true;
  TANDEM_RETURN_IF_ERROR(client_->Meet(tensors_.trained, tensors_.kept));
  return UpdateCopies();
}

}  // namespace tandem
