#include "parallel/step/ordered_sums.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "parallel/pipeline/stage/stage.h"
#include "parallel/schedule/schedule.h"
#include "parallel/step/step_score.h"

namespace tandem {

absl::StatusOr<GradientOrder> MakeGradientOrder(
    const MeshStrategyOptions& options, int replicas) {
  const Schedule& schedule = options.schedule;
  const int all = schedule.microbatches * replicas;
  GradientOrder order;
  order.microbatches = schedule.microbatches;
  order.groups = options.gradient_groups > 0 ? options.gradient_groups : all;
  order.find_unused_parameters = options.ddp.find_unused_parameters;
  order.splits = SplitsBackward(schedule);
  if (order.groups % replicas != 0 || all % order.groups != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradient_groups is ", order.groups, ": ", replicas,
                     " replicas must divide it, and it must divide the ", all,
                     " microbatches of the whole batch"));
  }
  const GradientsCome come = OrderOfGradients(schedule);
  order.descends = come == GradientsCome::kDescending;
  if (come == GradientsCome::kAscending) return order;
  if (come == GradientsCome::kInNoOrder) {
    return absl::InvalidArgumentError(absl::StrCat(
        "schedule ", schedule.name,
        " gives gradients of microbatches in no order: to be reproducible they "
        "must come from the first to the last, or the reverse"));
  }
  if (order.groups == all) return order;
  return absl::InvalidArgumentError(absl::StrCat(
      "gradient_groups is ", order.groups, ", but schedule ", schedule.name,
      " gives gradients from the last microbatch to the first, so that each "
      "must be a group: ",
      all));
}

absl::StatusOr<Score> SumInOrder(const MeshModel& model,
                                 const std::vector<Score>& mine,
                                 const CollectivePurpose& purpose) {
  const int64_t count = model.options.schedule.microbatches;
  const int64_t first = model.groups.replica() * count;
  const at::Tensor all = at::zeros(
      {model.groups.replicas() * count, int64_t{kScoreNumbers}}, at::kDouble);
  auto* const numbers = all.mutable_data_ptr<double>();
  for (size_t i = 0; i < mine.size(); ++i) {
    ToNumbers(mine[i],
              numbers + (first + static_cast<int64_t>(i)) * kScoreNumbers);
  }
  if (model.groups.scores() != nullptr) {
    // Each is added to zeros.
    TANDEM_RETURN_IF_ERROR(model.groups.scores()->AllReduceSum(all, purpose));
  }
  Score score;
  for (int64_t i = 0; i < all.size(0); ++i) {
    score += ScoreFromNumbers(numbers + i * kScoreNumbers);
  }
  return score;
}

absl::Status TakeInStatistics(const MeshModel& model, int stage) {
  const PipelineStage& layers =
      *model.executor->stages()[static_cast<size_t>(stage)];
  if (layers.records()->size() == 0) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(at::Tensor records, layers.records()->Records());
  if (Communicator* const replicas = model.groups.data(stage)) {
    const int64_t own = records.size(0);
    const int64_t missing = model.options.schedule.microbatches - own;
    if (missing > 0) {
      records = at::cat(
          {records, at::zeros({missing, records.size(1)}, records.options())});
    }
    TANDEM_ASSIGN_OR_RETURN(
        std::vector<at::Tensor> all,
        replicas->AllGather(records, [] { return "running statistics"; }));
    for (int i = 0; i < model.groups.replicas(); ++i) {
      at::Tensor& each = all[static_cast<size_t>(i)];
      each = each.narrow(0, 0, model.shares->ReplicaMicrobatches(i));
    }
    records = at::cat(all);
  }
  return CatchTorch([&] { layers.records()->Apply(records); });
}

}  // namespace tandem
