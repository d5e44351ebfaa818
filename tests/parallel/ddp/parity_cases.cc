#include "tests/parallel/ddp/parity_cases.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/types/variant.h"
#include "core/base/status_macros.h"
#include "core/testing/device_types.h"
#include "parallel/optim/gradient_clipping.h"
#include "tests/models/formula_values.h"

namespace tandem {

PythonOptimizer::PythonOptimizer(const OptimizerOptions& options,
                                 std::vector<at::Tensor> parameters)
    : options_(options), parameters_(std::move(parameters)) {
  for (const at::Tensor& parameter : parameters_) {
    first_.push_back(at::zeros_like(parameter.detach()));
    second_.push_back(at::zeros_like(parameter.detach()));
    steps_.push_back(at::zeros({}, parameter.device()));
  }
}

PythonOptimizer::Lists PythonOptimizer::WithGradients() const {
  Lists lists;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].grad().defined()) continue;
    lists.parameters.push_back(parameters_[i]);
    lists.gradients.push_back(parameters_[i].grad());
    lists.first.push_back(first_[i]);
    lists.second.push_back(second_[i]);
    lists.steps.push_back(steps_[i]);
  }
  return lists;
}

void PythonOptimizer::Step(double learning_rate) {
  at::NoGradGuard no_grad;
  Lists lists = WithGradients();
  if (const auto* sgd = absl::get_if<SgdOptions>(&options_)) {
    at::_fused_sgd_(lists.parameters, lists.gradients, lists.first,
                    sgd->weight_decay, sgd->momentum, learning_rate,
                    sgd->dampening, sgd->nesterov, /*maximize=*/false,
                    /*is_first_step=*/!stepped_);
  } else {
    const auto& adamw = absl::get<AdamWOptions>(options_);
    for (at::Tensor& step : lists.steps) step.add_(1);
    at::_fused_adamw_(lists.parameters, lists.gradients, lists.first,
                      lists.second, /*max_exp_avg_sqs=*/{}, lists.steps,
                      learning_rate, adamw.beta1, adamw.beta2,
                      adamw.weight_decay, adamw.eps, /*amsgrad=*/false,
                      /*maximize=*/false);
  }
  stepped_ = true;
}

ParityMlp::ParityMlp(const std::string& suffix)
    : fc1(register_module("fc1",
                          torch::nn::Linear(kParityInputs, kParityWidth))),
      fc2(register_module("fc2",
                          torch::nn::Linear(kParityWidth, kParityWidth))),
      branch(register_module("branch",
                             torch::nn::Linear(kParityWidth, kParityWidth))),
      fc3(register_module("fc3",
                          torch::nn::Linear(kParityWidth, kParityClasses))) {
  at::NoGradGuard no_grad;
  for (auto& parameter : named_parameters()) {
    FillByFormula(parameter.key() + suffix, parameter.value());
  }
  to(TestDevice());
}

at::Tensor ParityMlp::forward(at::Tensor x, bool use_branch, int times) {
  x = fc1(x).tanh();
  for (int i = 0; i < times; ++i) x = fc2(x).tanh();
  if (use_branch) x = x.add(branch(x));
  return fc3(x);
}

ParityBatch MakeParityBatch(int step, int rank, int microbatch) {
  ParityBatch batch;
  batch.inputs = at::empty({kParityBatch, kParityInputs});
  FillByFormula(absl::StrCat("batch.", step, ".", rank, ".", microbatch),
                batch.inputs);
  batch.targets = at::arange(kParityBatch, at::kLong)
                      .mul(3)
                      .add(step + 2 * rank + microbatch)
                      .remainder(kParityClasses)
                      .to(TestDevice());
  batch.inputs = batch.inputs.to(TestDevice());
  return batch;
}

at::Tensor ParityLoss(const at::Tensor& outputs, const ParityBatch& batch) {
  return at::cross_entropy_loss(outputs, batch.targets);
}

at::Tensor FlattenParameters(const torch::nn::Module& module) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& parameter : module.parameters()) {
    parts.push_back(parameter.detach().flatten());
  }
  return at::cat(parts).cpu();
}

at::Tensor FlattenGradients(const torch::nn::Module& module) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& parameter : module.parameters()) {
    const at::Tensor& gradient = parameter.grad();
    parts.push_back(
        gradient.defined()
            ? gradient.detach().flatten()
            : at::full_like(parameter.detach(), std::nan("")).flatten());
  }
  return at::cat(parts).cpu();
}

namespace {

// A rank at work.
class Job {
 public:
  Job(const ParityCase& job, Communicator& world) : job_(job), world_(world) {}

  absl::StatusOr<ParityResult> Run();

 private:
  absl::Status Prepare();
  absl::Status Microbatch(int step, int microbatch, int count);
  absl::Status Train(int step);
  void Update();

  const ParityCase& job_;
  Communicator& world_;
  std::shared_ptr<ParityMlp> model_;
  std::unique_ptr<DistributedDataParallel<std::shared_ptr<ParityMlp>>> ddp_;
  std::unique_ptr<PythonOptimizer> pythons_;
  std::unique_ptr<Optimizer> tandems_;
  ParityResult result_;
};

absl::Status Job::Prepare() {
  model_ = std::make_shared<ParityMlp>(ParitySuffix(world_.rank()));
  for (auto& parameter : model_->named_parameters()) {
    parameter.value().requires_grad_(
        !absl::c_linear_search(job_.frozen, parameter.key()));
  }
  TANDEM_ASSIGN_OR_RETURN(
      ddp_, MakeDistributedDataParallel(model_, world_, job_.options));
  if (job_.hook) {
    TANDEM_RETURN_IF_ERROR(ddp_->register_comm_hook(job_.hook()));
  }
  pythons_ =
      std::make_unique<PythonOptimizer>(job_.optimizer, model_->parameters());
  TANDEM_ASSIGN_OR_RETURN(tandems_,
                          MakeOptimizer(job_.optimizer, ddp_->flat_buffers()));
  return absl::OkStatus();
}

absl::Status Job::Microbatch(int step, int microbatch, int count) {
  const bool last = microbatch + 1 == count;
  const bool use_branch = job_.UsesBranch(step, world_.rank());
  const ParityBatch batch = MakeParityBatch(step, world_.rank(), microbatch);
  const auto forward = [&]() -> absl::StatusOr<at::Tensor> {
    TANDEM_ASSIGN_OR_RETURN(
        const at::Tensor outputs,
        ddp_->Forward(batch.inputs, use_branch, job_.times));
    return ParityLoss(outputs, batch).div(count);
  };
  at::Tensor loss;
  if (last || !job_.no_sync_around_forward) {
    TANDEM_ASSIGN_OR_RETURN(loss, forward());
    if (last) return ddp_->Backward(loss);
  }
  const auto guard = ddp_->no_sync();
  if (!loss.defined()) {
    TANDEM_ASSIGN_OR_RETURN(loss, forward());
  }
  return ddp_->Backward(loss);
}

absl::Status Job::Train(int step) {
  const int count = job_.MicrobatchesOf(step);
  for (int microbatch = 0; microbatch < count; ++microbatch) {
    TANDEM_RETURN_IF_ERROR(Microbatch(step, microbatch, count));
  }
  if (step == 0) {
    result_.first_gradients = FlattenGradients(*model_);
  }
  Update();
  return absl::OkStatus();
}

void Job::Update() {
  if (job_.clip_norm > 0) {
    ClipGradientNorm(ddp_->flat_buffers(), job_.clip_norm);
  }
  if (job_.clip_value > 0) {
    ClipGradientValue(ddp_->flat_buffers(), job_.clip_value);
  }
  if (job_.pythons_optimizer) {
    pythons_->Step(job_.learning_rate);
  } else {
    tandems_->Step(job_.learning_rate);
  }
  ddp_->ZeroGrad();
}

absl::StatusOr<ParityResult> Job::Run() {
  at::set_num_threads(1);
  TANDEM_RETURN_IF_ERROR(Prepare());
  for (int step = 0; step < job_.steps; ++step) {
    TANDEM_RETURN_IF_ERROR(Train(step));
  }
  result_.final = FlattenParameters(*model_);
  return result_;
}

}  // namespace

ParityCase::ParityCase(std::string name) : name(std::move(name)) {
  SgdOptions sgd;
  sgd.momentum = 0.9;
  sgd.weight_decay = 0.01;
  optimizer = sgd;
}

int ParityCase::MicrobatchesOf(int step) const {
  return step == 0 && one_microbatch_first ? 1 : microbatches;
}

// With `unused`: on rank 1, nowhere, everywhere, on rank 0, nowhere.
bool ParityCase::UsesBranch(int step, int rank) const {
  return !unused || (step == 0 && rank == 1) || step == 2 ||
         (step == 3 && rank == 0);
}

OptimizerOptions ParityAdamW() { return AdamWOptions{0.9, 0.99, 1e-3, 0.1}; }

std::string ParitySuffix(int rank) {
  return rank == 0 ? "" : absl::StrCat(".", rank);
}

absl::StatusOr<ParityResult> RunParityCase(const ParityCase& job,
                                           Communicator& world) {
  return Job(job, world).Run();
}

}  // namespace tandem
