#include "tests/parallel/matrix/cell_mutation.h"

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include "core/base/status_macros.h"
#include "core/instrument/fault_point.h"
#include "core/model/layer_list.h"
#include "parallel/pipeline/executor.h"
#include "tests/parallel/matrix/cell_problem.h"

namespace tandem {
namespace {

// On the thread of the device that holds what is mutated.
thread_local MutatedRank* mutated_here = nullptr;

bool IsOfLastReplica(const MatrixCell& cell, const Communicator* world) {
  const int rank = world == nullptr ? 0 : world->rank();
  return rank / cell.ranks_of_replica() + 1 == cell.replicas;
}

}  // namespace

std::string ToString(CellMutation mutation) {
  switch (mutation) {
    case CellMutation::kNone:
      return "none";
    case CellMutation::kBucketReducedTwice:
      return "a bucket reduced twice";
    case CellMutation::kSwappedMicrobatch:
      return "a swapped microbatch";
    case CellMutation::kMissingTiedGradient:
      return "a missing tied gradient";
  }
  return "";
}

absl::StatusOr<std::unique_ptr<MutatedRank>> MutatedRank::Create(
    CellMutation mutation, const MatrixCell& cell, MeshStrategy& hybrid,
    Communicator* world) {
  auto rank = std::make_unique<MutatedRank>();
  rank->microbatch_size_ = MicrobatchSize(cell);
  if (mutation == CellMutation::kBucketReducedTwice) {
    TANDEM_RETURN_IF_ERROR(rank->PrepareToReduce(cell, hybrid, world));
  }
  if (!IsOfLastReplica(cell, world)) return rank;
  rank->swaps_ = mutation == CellMutation::kSwappedMicrobatch;
  if (mutation == CellMutation::kMissingTiedGradient) {
    for (const auto& [name, parameter] : hybrid.Parameters()) {
      if (name != "lm_head.weight") continue;
      parameter.register_hook(
          [](const at::Tensor& gradient) { return at::zeros_like(gradient); });
    }
  }
  return rank;
}

absl::Status MutatedRank::PrepareToReduce(const MatrixCell& cell,
                                          MeshStrategy& hybrid,
                                          Communicator* world) {
  const auto& stage = hybrid.executor().stages().front();
  if (stage == nullptr) return absl::OkStatus();
  bucket_ = NamedParameters(stage->layers());
  std::vector<int> ranks;
  for (int i = 0; i < cell.replicas; ++i) {
    ranks.push_back(i * cell.ranks_of_replica());
  }
  TANDEM_ASSIGN_OR_RETURN(replicas_, world->Subgroup(ranks, "once more"));
  return hybrid.OnDevices([this](int device) {
    if (device == 0) mutated_here = this;
    return absl::OkStatus();
  });
}

absl::Status MutatedRank::ReduceAgain() {
  for (const auto& [name, parameter] : bucket_) {
    const at::Tensor& gradient = parameter.grad();
    const at::Tensor sum = gradient.contiguous().clone();
    TANDEM_RETURN_IF_ERROR(replicas_->AllReduceSum(sum));
    gradient.copy_(sum);
  }
  return absl::OkStatus();
}

Batch MutatedRank::Changed(const Batch& batch) const {
  if (!swaps_) return batch;
  const int64_t size = microbatch_size_;
  const at::Tensor order =
      at::cat({at::arange(size), at::arange(2 * size, 3 * size),
               at::arange(size, 2 * size), at::arange(3 * size, batch.size)});
  Batch changed = batch;
  changed.inputs = batch.inputs.index_select(0, order);
  changed.targets = batch.targets.index_select(0, order);
  return changed;
}

ArmedMutation::ArmedMutation(CellMutation mutation) {
  if (mutation != CellMutation::kBucketReducedTwice) return;
  Fault fault;
  fault.point = "before_optimizer";
  fault.action = Fault::Action::kCall;
  fault.call = [] {
    return mutated_here == nullptr ? absl::OkStatus()
                                   : mutated_here->ReduceAgain();
  };
  ArmFaults({fault});
}

ArmedMutation::~ArmedMutation() { ArmFaults({}); }

}  // namespace tandem
