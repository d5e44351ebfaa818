#include "parallel/step/mesh_model.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <glog/logging.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/schedule/schedules.h"

namespace tandem {
namespace {

int64_t SumSizes(const std::vector<int64_t>& sizes, int first, int end) {
  return std::accumulate(sizes.begin() + first, sizes.begin() + end,
                         int64_t{0});
}

absl::Status CheckAny(int64_t samples) {
  if (samples > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "a training step needs at least one sample");
}

// What is missing of a whole batch must be missing at its end.
absl::Status CheckIsWholeBatchesBeginning(const std::vector<int64_t>& sizes,
                                          int64_t most) {
  bool may_have_more = true;
  for (const int64_t size : sizes) {
    if (size > most || (size > 0 && !may_have_more)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "replicas have batches of ", absl::StrJoin(sizes, ", "),
          " samples: to be reproducible each must have ", most,
          ", but for the last ones, where the step has fewer in all"));
    }
    may_have_more = size == most;
  }
  return absl::OkStatus();
}

}  // namespace

// Collective where batches may be uneven.
absl::Status BatchShares::ExchangeSizes(int64_t size, bool apart) {
  apart_ = apart;
  const int replicas = groups_.replicas();
  sizes_.assign(static_cast<size_t>(replicas), size);
  if (apart || !options_.uneven_batches) return CheckAny(size);
  if (Communicator* const world = groups_.world()) {
    TANDEM_ASSIGN_OR_RETURN(
        const std::vector<at::Tensor> all,
        world->AllGather(at::full({1}, size, at::kLong),
                         [] { return "the sizes of batches"; }));
    const int ranks = groups_.mesh().ranks_of_replica();
    for (int rank = 0; rank < world->size(); ++rank) {
      const int64_t of_rank =
          *all[static_cast<size_t>(rank)].const_data_ptr<int64_t>();
      const int replica = groups_.mesh().ReplicaIndex(rank);
      const int first = replica * ranks;
      int64_t& of_replica = sizes_[static_cast<size_t>(replica)];
      if (rank == first) of_replica = of_rank;
      if (of_rank == of_replica) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "ranks ", first, " and ", rank, " of one replica have batches of ",
          of_replica, " and ", of_rank, " samples: give them the same"));
    }
  }
  TANDEM_RETURN_IF_ERROR(CheckAny(SumSizes(sizes_, 0, replicas)));
  if (!options_.reproducible) return absl::OkStatus();
  return CheckIsWholeBatchesBeginning(
      sizes_, options_.microbatch_size * options_.schedule.microbatches);
}

absl::StatusOr<std::vector<Batch>> BatchShares::Microbatches(
    const Batch& batch) const {
  const auto count = static_cast<size_t>(options_.schedule.microbatches);
  const std::vector<int64_t> sizes =
      options_.microbatch_size > 0
          ? FixedSizes(batch.size, options_.microbatch_size)
          : EvenSizes(batch.size, options_.schedule.microbatches);
  // What goes one after the other may also be fewer.
  const bool may_be_fewer =
      options_.uneven_batches || options_.schedule.name == kSequential;
  const bool fits =
      may_be_fewer ? sizes.size() <= count : sizes.size() == count;
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", batch.size, " samples gives ", sizes.size(),
                     " microbatches, but schedule ", options_.schedule.name,
                     " has ", count));
  }
  const bool even = sizes.empty() || sizes.front() == sizes.back();
  if (options_.reproducible && !options_.uneven_batches && !even) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a batch of ", batch.size, " samples a replica gives microbatches of ",
        sizes.front(), " and ", sizes.back(),
        " samples: to be reproducible all must be of one size"));
  }
  return SplitBatch(batch, sizes);
}

// How many of the step's microbatches a replica has: as many as the sizes give.
int64_t BatchShares::ReplicaMicrobatches(int replica) const {
  if (!options_.uneven_batches) return options_.schedule.microbatches;
  CHECK_GT(options_.microbatch_size, 0);
  return static_cast<int64_t>(
      FixedSizes(sizes_[static_cast<size_t>(replica)], options_.microbatch_size)
          .size());
}

int64_t BatchShares::MicrobatchesFor(int64_t samples) const {
  const std::vector<int64_t> sizes =
      options_.microbatch_size > 0
          ? FixedSizes(samples, options_.microbatch_size)
          : EvenSizes(samples, options_.schedule.microbatches);
  return static_cast<int64_t>(sizes.size());
}

int64_t BatchShares::MostMicrobatches() const {
  return MicrobatchesFor(*std::max_element(sizes_.begin(), sizes_.end()));
}

bool BatchShares::SomeHaveFewer() const {
  const int64_t smallest = *std::min_element(sizes_.begin(), sizes_.end());
  return MicrobatchesFor(smallest) < MostMicrobatches();
}

// Collective over the last stage's replicas where the loss has a weight. Summed
// by microbatch, as one rank would.
absl::StatusOr<std::vector<double>> BatchShares::LossParts(
    const std::vector<Batch>& microbatches) const {
  const int last = options_.schedule.stages - 1;
  if (!loss_.weight() || !groups_.holds(last)) return std::vector<double>();
  TANDEM_ASSIGN_OR_RETURN(const std::vector<double> mine,
                          LossWeights(loss_, microbatches));
  const int64_t count = options_.schedule.microbatches;
  const at::Tensor all =
      at::zeros({groups_.replicas() * count}, at::dtype(at::kDouble));
  auto* const weights = all.mutable_data_ptr<double>();
  std::copy(mine.begin(), mine.end(), weights + groups_.replica() * count);
  Communicator* const replicas = groups_.data(last);
  if (replicas != nullptr && !apart_) {
    TANDEM_RETURN_IF_ERROR(
        replicas->AllReduceSum(all, [] { return "the weights of losses"; }));
  }
  // A sum over replicas, else a mean.
  const bool sums = options_.reproducible || apart_;
  double total = std::accumulate(weights, weights + all.numel(), 0.0) /
                 (sums ? 1 : groups_.replicas());
  if (mean_weight_) {
    TANDEM_ASSIGN_OR_RETURN(total, mean_weight_(total));
  }
  return PartsOfTotal(mine, total);
}

// What a microbatch's samples are a part of, where replicas are summed, or
// their mean is taken.
double BatchShares::SamplesDividedBy() const {
  const int replicas = groups_.replicas();
  const auto mine =
      static_cast<double>(sizes_[static_cast<size_t>(groups_.replica())]);
  switch (division_) {
    case UnevenDivision::kInitialReplicas:
      return mine;
    case UnevenDivision::kPresentReplicas: {
      const auto empty = std::count(sizes_.begin(), sizes_.end(), 0);
      return mine * static_cast<double>(replicas - empty) / replicas;
    }
    case UnevenDivision::kSamples:
      break;
  }
  return static_cast<double>(SumSizes(sizes_, 0, replicas)) /
         (options_.reproducible ? 1 : replicas);
}

absl::StatusOr<StepSamples> BatchShares::SamplesOfStep(
    const std::vector<Batch>& microbatches, int64_t step) const {
  if (division_ != UnevenDivision::kSamples && loss_.weight()) {
    return absl::InvalidArgumentError(
        "the loss has a weight, by which replicas' gradients are divided: "
        "leave "
        "uneven_division as it is");
  }
  StepSamples samples;
  samples.samples = {options_.seed, step,
                     SumSizes(sizes_, 0, groups_.replica())};
  samples.of = SamplesDividedBy();
  TANDEM_ASSIGN_OR_RETURN(samples.loss_parts, LossParts(microbatches));
  return samples;
}

std::vector<TrainedStage*> MeshModel::AllStages() const {
  std::vector<TrainedStage*> all;
  for (const auto& stage : stages) {
    if (stage != nullptr) all.push_back(stage.get());
  }
  return all;
}

std::vector<int> MeshModel::OwnStages() const {
  std::vector<int> own;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i] != nullptr) own.push_back(static_cast<int>(i));
  }
  return own;
}

absl::Status MeshModel::OnStages(
    absl::FunctionRef<absl::Status(int stage)> work) const {
  return executor->OnDevices([&](int device) {
    for (int i : options.schedule.stages_of[static_cast<size_t>(device)]) {
      TANDEM_RETURN_IF_ERROR(work(i));
    }
    return absl::OkStatus();
  });
}

size_t MeshModel::LocalDevice(int device) const {
  return static_cast<size_t>(device) % options.devices.size();
}

void MeshModel::SetTraining(bool on) const {
  for (const TrainingModes& each : modes) each.Set(on);
}

absl::Status MeshModel::Agree(const absl::Status& mine) const {
  Communicator* const world = groups.world();
  if (world == nullptr) return mine;
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      world->AllGatherString(std::string(mine.message()), [] {
        return "whether all ranks have made their stages";
      }));
  if (!mine.ok()) return mine;
  for (int rank = 0; rank < world->size(); ++rank) {
    const std::string& reason = all[static_cast<size_t>(rank)];
    if (reason.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", world->NameOf(rank), ": ", reason));
  }
  return absl::OkStatus();
}

}  // namespace tandem
