#include "core/model/shared_statistics.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

namespace tandem {

void Add(const GatheredStatistics& part, GatheredStatistics* sum) {
  if (part.count == 0) return;  // nobody had any
  if (sum->count == 0) {
    *sum = {part.count, part.mean.clone(), part.squares.clone()};
    return;
  }
  const auto before = static_cast<double>(sum->count);
  const auto added = static_cast<double>(part.count);
  const double share = added / (before + added);
  const at::Tensor distance = part.mean - sum->mean;
  sum->mean += distance * share;
  sum->squares += part.squares + distance.square() * (before * share);
  sum->count += part.count;
}

void UpdateRunningStatistics(const at::Tensor& mean,
                             const at::Tensor& unbiased_variance,
                             std::optional<double> momentum,
                             at::Tensor& running_mean, at::Tensor& running_var,
                             at::Tensor& num_batches_tracked) {
  const at::NoGradGuard no_grad;
  num_batches_tracked += 1;
  const double share =
      momentum.has_value()
          ? *momentum
          : 1.0 / static_cast<double>(num_batches_tracked.item<int64_t>());
  const auto take_in = [share](at::Tensor& running, const at::Tensor& now) {
    running.copy_(running.to(at::kDouble) * (1 - share) +
                  now.to(running.device()) * share);
  };
  take_in(running_mean, mean);
  take_in(running_var, unbiased_variance);
}

void UpdateRunningStatistics(const SharedStatistics& now,
                             std::optional<double> momentum,
                             at::Tensor& running_mean, at::Tensor& running_var,
                             at::Tensor& num_batches_tracked) {
  if (now.count == 0) return;
  const auto count = static_cast<double>(now.count);
  UpdateRunningStatistics(now.mean, now.variance * (count / (count - 1)),
                          momentum, running_mean, running_var,
                          num_batches_tracked);
}

StatisticsRecording::StatisticsRecording(KeptStatistics* kept)
    : kept_(kept),
      outer_(ComputeContext::Current().recording),
      scope_([this](ComputeContext& context) { context.recording = this; }) {}

StatisticsReplay::StatisticsReplay(const KeptStatistics* kept)
    : kept_(kept), scope_([this](ComputeContext& context) {
        context.replay = this;
        context.recording = nullptr;
      }) {}

std::optional<SharedStatistics> KeptStatistics::Next() {
  StatisticsReplay* const replay = ComputeContext::Current().replay;
  if (replay == nullptr) return std::nullopt;
  TORCH_CHECK(replay->next_ < replay->kept_->all_.size(),
              "what is computed again has more layers that share statistics "
              "(SyncBatchNorm) than its first pass: run the same layers");
  return replay->kept_->all_[replay->next_++];
}

void KeptStatistics::Note(const SharedStatistics& statistics) {
  for (StatisticsRecording* each = ComputeContext::Current().recording;
       each != nullptr; each = each->outer_) {
    each->kept_->all_.push_back(statistics);
  }
}

}  // namespace tandem
