#include "tests/parallel/ddp/parity_cases.h"

#include <ATen/Parallel.h>

#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "parallel/optim/gradient_clipping.h"
#include "tests/parallel/ddp/parity_mlp.h"
#include "tests/parallel/ddp/python_optimizer.h"

namespace tandem {
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
