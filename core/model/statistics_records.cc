#include "core/model/statistics_records.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <glog/logging.h>
#include <torch/nn/module.h>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

// Statistics of several layers, one behind the other.
struct FlatStatistics {
  at::Tensor mean, variance, momentum;
};

// PyTorch's arithmetic on the CPU, rounding by rounding: momentum in the
// buffers' dtype; means in it, too; the variance's last sum in double.
void TakeIn(const at::Tensor& record, FlatStatistics& running) {
  const int64_t features = running.mean.numel();
  const at::Tensor kept = at::rsub(running.momentum, 1);
  running.mean =
      running.momentum * record.narrow(0, 0, features) + kept * running.mean;
  const at::Tensor added =
      running.momentum.to(at::kDouble) * record.narrow(0, features, features);
  running.variance =
      (added + kept * running.variance).to(running.variance.scalar_type());
}

}  // namespace

StatisticsRecords::StatisticsRecords(const LayerList& layers) {
  for (const Layer& layer : layers) {
    if (layer.module == nullptr) continue;
    for (const auto& item : layer.module->named_modules(layer.name)) {
      auto* const found = dynamic_cast<RecordsStatistics*>(item.value().get());
      const bool known = absl::c_any_of(
          slots_, [&](const Slot& slot) { return slot.layer == found; });
      if (found == nullptr || known) continue;
      slots_.push_back({item.key(), item.value(), found, {}});
    }
  }
}

int64_t StatisticsRecords::size() const {
  int64_t size = 0;
  for (const Slot& slot : slots_) {
    size += 2 * slot.layer->running_statistics().running_mean.numel();
  }
  return size;
}

void StatisticsRecords::Begin(int microbatches) {
  microbatches_ = microbatches;
  for (Slot& slot : slots_) {
    slot.seen.assign(static_cast<size_t>(microbatches), at::Tensor());
  }
}

void StatisticsRecords::Record(const RecordsStatistics& layer, int microbatch,
                               const at::Tensor& statistics) {
  const auto slot = absl::c_find_if(
      slots_, [&](const Slot& each) { return each.layer == &layer; });
  TORCH_CHECK(slot != slots_.end(),
              "a layer of another stage records its statistics here");
  TORCH_CHECK_INDEX(microbatch >= 0 && microbatch < microbatches_, slot->name,
                    " records microbatch ", microbatch, " of ", microbatches_);
  at::Tensor& seen = slot->seen[static_cast<size_t>(microbatch)];
  TORCH_CHECK_VALUE(!seen.defined(), slot->name, " runs twice in microbatch ",
                    microbatch,
                    ": statistics can be recorded of one pass alone");
  seen = statistics;
}

absl::StatusOr<at::Tensor> StatisticsRecords::Records() const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> records;
  for (int i = 0; i < microbatches_; ++i) {
    std::vector<at::Tensor> means, variances;
    for (const Slot& slot : slots_) {
      at::Tensor seen = slot.seen[static_cast<size_t>(i)];
      if (!seen.defined() && slot.module->is_training()) {
        return absl::FailedPreconditionError(absl::StrCat(
            slot.name, " has recorded no statistics of microbatch ", i,
            ": has it not run?"));
      }
      if (!seen.defined()) {
        const at::Tensor like = slot.layer->running_statistics().running_mean;
        seen = at::zeros({2, like.numel()}, like.options());
      }
      means.push_back(seen.select(0, 0));
      variances.push_back(seen.select(0, 1));
    }
    means.insert(means.end(), variances.begin(), variances.end());
    if (!means.empty()) records.push_back(at::cat(means));
  }
  if (!records.empty()) return at::stack(records);
  at::TensorOptions options;
  if (!slots_.empty()) {
    options = slots_.front().layer->running_statistics().running_mean.options();
  }
  return at::empty({microbatches_, size()}, options);
}

void StatisticsRecords::Apply(const at::Tensor& records) const {
  CHECK_EQ(records.dim(), 2);
  CHECK_EQ(records.size(1), size());
  if (records.numel() == 0) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> means, variances, momenta;
  for (const Slot& slot : slots_) {
    const RunningStatistics own = slot.layer->running_statistics();
    means.push_back(own.running_mean);
    variances.push_back(own.running_var);
    momenta.push_back(at::full_like(own.running_mean, own.momentum));
  }
  FlatStatistics running = {at::cat(means), at::cat(variances),
                            at::cat(momenta)};
  for (const at::Tensor& record : records.to(running.mean.device()).unbind()) {
    TakeIn(record, running);
  }
  int64_t first = 0;
  for (const Slot& slot : slots_) {
    const RunningStatistics own = slot.layer->running_statistics();
    const int64_t features = own.running_mean.numel();
    if (slot.module->is_training()) {
      own.running_mean.copy_(running.mean.narrow(0, first, features));
      own.running_var.copy_(running.variance.narrow(0, first, features));
      own.num_batches_tracked.add_(records.size(0));
    }
    first += features;
  }
}

}  // namespace tandem
