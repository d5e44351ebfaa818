#include "tests/parallel/ddp/parity_by_hand.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "tests/parallel/ddp/parity_mlp.h"
#include "tests/parallel/ddp/python_optimizer.h"

namespace tandem {
namespace {

constexpr int kRanks = 2;

struct Replica {
  Replica(const ParityCase& job, int rank)
      : model(std::make_shared<ParityMlp>(ParitySuffix(rank))),
        parameters(model->named_parameters()),
        optimizer(job.optimizer, model->parameters()) {
    for (auto& parameter : parameters) {
      parameter.value().requires_grad_(
          !absl::c_linear_search(job.frozen, parameter.key()));
    }
  }

  std::shared_ptr<ParityMlp> model;
  torch::OrderedDict<std::string, at::Tensor> parameters;
  PythonOptimizer optimizer;
};

class ByHand {
 public:
  explicit ByHand(const ParityCase& job) : job_(job) {
    for (int rank = 0; rank < kRanks; ++rank) replicas_.emplace_back(job, rank);
    at::NoGradGuard no_grad;
    ForEachShared(
        [](at::Tensor& first, at::Tensor& second) { second.copy_(first); });
  }

  std::vector<ParityResult> Train();

 private:
  // With both replicas' parameter, unless it is each rank's own.
  template <typename Function>
  void ForEachShared(const Function& function);
  void Backward(int step, int rank);
  void FormMeans();
  void Update(Replica& replica);

  const ParityCase& job_;
  std::vector<Replica> replicas_;
};

template <typename Function>
void ByHand::ForEachShared(const Function& function) {
  for (auto& parameter : replicas_[0].parameters) {
    if (absl::c_linear_search(job_.options.parameters_to_ignore,
                              parameter.key())) {
      continue;
    }
    function(parameter.value(), replicas_[1].parameters[parameter.key()]);
  }
}

void ByHand::Backward(int step, int rank) {
  const int count = job_.MicrobatchesOf(step);
  for (int microbatch = 0; microbatch < count; ++microbatch) {
    const ParityBatch batch = MakeParityBatch(step, rank, microbatch);
    const at::Tensor outputs = replicas_[rank].model->forward(
        batch.inputs, job_.UsesBranch(step, rank), job_.times);
    ParityLoss(outputs, batch).div(count).backward();
  }
}

// A gradient that one rank lacks counts as 0.
void ByHand::FormMeans() {
  at::NoGradGuard no_grad;
  const auto share = [this](const at::Tensor& parameter) {
    const at::Tensor& gradient = parameter.grad();
    return (gradient.defined() ? gradient : at::zeros_like(parameter))
        .to(job_.sent_as)
        .div(kRanks);
  };
  ForEachShared([&](at::Tensor& first, at::Tensor& second) {
    if (!first.grad().defined() && !second.grad().defined()) return;
    const at::Tensor mean = share(first).add(share(second)).to(at::kFloat);
    first.mutable_grad() = mean;
    second.mutable_grad() = mean.clone();
  });
}

void ByHand::Update(Replica& replica) {
  if (job_.clip_value > 0) {
    for (auto& parameter : replica.parameters) {
      at::Tensor& gradient = parameter.value().mutable_grad();
      if (gradient.defined())
        gradient.clamp_(-job_.clip_value, job_.clip_value);
    }
  }
  replica.optimizer.Step(job_.learning_rate);
  for (auto& parameter : replica.parameters) {
    parameter.value().mutable_grad().reset();
  }
}

std::vector<ParityResult> ByHand::Train() {
  std::vector<ParityResult> results(kRanks);
  for (int step = 0; step < job_.steps; ++step) {
    for (int rank = 0; rank < kRanks; ++rank) Backward(step, rank);
    FormMeans();
    for (int rank = 0; rank < kRanks; ++rank) {
      Replica& replica = replicas_[rank];
      if (step == 0) {
        results[rank].first_gradients = FlattenGradients(*replica.model);
      }
      Update(replica);
      results[rank].final = FlattenParameters(*replica.model);
    }
  }
  return results;
}

}  // namespace

bool HasBitsByHand(const ParityCase& job, int ranks) {
  return ranks == kRanks && !job.power_sgd && job.clip_norm == 0 &&
         job.pythons_optimizer;
}

std::vector<ParityResult> TrainByHand(const ParityCase& job) {
  at::set_num_threads(1);
  return ByHand(job).Train();
}

}  // namespace tandem
