#include "parallel/comm_hooks/power_sgd.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/comm/pending_collective.h"
#include "parallel/comm_hooks/communication_hook.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "parallel/comm_hooks/power_sgd_bucket.h"
#include "parallel/optim/optimizer_options.h"

namespace tandem {
namespace {

constexpr char kIter[] = "power_sgd.iter";
constexpr char kBefore[] = "power_sgd.numel_before_compression";
constexpr char kAfter[] = "power_sgd.numel_after_compression";
constexpr char kQ[] = ".q";
constexpr char kError[] = ".error";

absl::Status Misfit(absl::string_view name, const at::Tensor& expected,
                    const at::Tensor& got) {
  return absl::InvalidArgumentError(
      absl::StrCat("PowerSGD state ", name, ": expected ",
                   DescribeTensor(expected), ", got ", DescribeTensor(got),
                   "; it was saved with another model or another ",
                   "matrix_approximation_rank"));
}

// Copies `from`, if there is one.
absl::Status CopyIfFits(absl::string_view name, const at::Tensor& from,
                        const at::Tensor& to) {
  if (!from.defined()) return absl::OkStatus();
  if (from.sizes() != to.sizes()) return Misfit(name, to, from);
  to.copy_(from);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Count(const NamedTensors& state,
                              absl::string_view name) {
  for (const auto& [key, tensor] : state) {
    if (key != name) continue;
    if (tensor.defined() && tensor.dim() == 0 &&
        tensor.scalar_type() == at::kLong && tensor.item<int64_t>() >= 0) {
      return tensor.item<int64_t>();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("PowerSGD state ", name,
                     ": expected an int64 scalar that is not negative, got ",
                     DescribeTensor(tensor)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("PowerSGD state: ", name, " is missing"));
}

}  // namespace

// What stands behind a PowerSgd handle.
class PowerSgdState : public std::enable_shared_from_this<PowerSgdState> {
 public:
  explicit PowerSgdState(const PowerSgdOptions& options);

  // See CommunicationHook.
  absl::StatusOr<FinishReduction> Start(const GradBucket& bucket,
                                        Communicator& group);

  // See PowerSgd.
  const CompressionStats& stats() const { return stats_; }
  NamedTensors State() const;
  absl::Status LoadState(const NamedTensors& state);

 private:
  // What is kept of one parameter from step to step: tensors of the bucket that
  // it is in, or, before it was seen in one, those that were loaded. Undefined:
  // none.
  struct Kept {
    at::Tensor q;
    at::Tensor error;  // as the parameter has it
  };
  using KeptByName = std::map<std::string, Kept>;

  // All that happens to a bucket in one step.
  struct Step;

  absl::StatusOr<PowerSgdBucket*> LaidOut(const GradBucket& bucket,
                                          Communicator& group);
  absl::Status Restore(const LowRankGradient& each);
  absl::Status Finish(Step& step) const;

  PowerSgdOptions options_;
  CommunicationHook all_reduce_;
  CompressionStats stats_;
  KeptByName kept_;
  BucketMemory<PowerSgdBucket> memory_;
};

struct PowerSgdState::Step {
  const PowerSgdBucket* bucket;
  Communicator* group;
  int64_t iter;
  PendingCollective uncompressed;
  PendingCollective ps;
};

PowerSgdState::PowerSgdState(const PowerSgdOptions& options)
    : options_(options), all_reduce_(AllReduceHook()) {}

absl::StatusOr<FinishReduction> PowerSgdState::Start(const GradBucket& bucket,
                                                     Communicator& group) {
  const int64_t iter = stats_.iter;
  if (bucket.is_last) ++stats_.iter;
  if (iter < options_.start_power_sgd_iter) return all_reduce_(bucket, group);

  at::NoGradGuard no_grad;
  TANDEM_ASSIGN_OR_RETURN(const PowerSgdBucket* laid_out,
                          LaidOut(bucket, group));
  auto step = std::make_shared<Step>();
  step->bucket = laid_out;
  step->group = &group;
  step->iter = iter;
  stats_.numel_before_compression += laid_out->numel_before;
  stats_.numel_after_compression += laid_out->numel_after;
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] { GatherUncompressed(*laid_out); }));
  TANDEM_ASSIGN_OR_RETURN(
      step->uncompressed,
      StartAllReduceMean(laid_out->uncompressed_memory, group));
  if (laid_out->low_rank.empty()) {
    return FinishReduction([step] { return step->uncompressed.Wait(); });
  }
  TANDEM_RETURN_IF_ERROR(CatchTorch(
      [&] {
        for (const LowRankGradient& each : laid_out->low_rank) {
          ComputeP(each, options_, iter);
        }
      },
      "PowerSGD"));
  TANDEM_ASSIGN_OR_RETURN(step->ps, group.StartAllReduceSum(laid_out->ps));
  return FinishReduction([self = shared_from_this(), step] {
    return CatchTorch([&] { return self->Finish(*step); }, "PowerSGD");
  });
}

absl::Status PowerSgdState::Finish(Step& step) const {
  at::NoGradGuard no_grad;
  const PowerSgdBucket& bucket = *step.bucket;
  TANDEM_RETURN_IF_ERROR(step.uncompressed.Wait());
  ScatterUncompressed(bucket);
  TANDEM_RETURN_IF_ERROR(step.ps.Wait());
  for (const LowRankGradient& each : bucket.low_rank) ComputeQ(each, options_);
  TANDEM_ASSIGN_OR_RETURN(PendingCollective qs,
                          StartAllReduceMean(bucket.qs, *step.group));
  TANDEM_RETURN_IF_ERROR(qs.Wait());
  for (const LowRankGradient& each : bucket.low_rank) {
    Decompress(each, options_, step.iter);
  }
  return absl::OkStatus();
}

absl::StatusOr<PowerSgdBucket*> PowerSgdState::LaidOut(const GradBucket& bucket,
                                                       Communicator& group) {
  PowerSgdBucket* known = memory_.Find(bucket);
  if (known != nullptr) return known;
  TANDEM_ASSIGN_OR_RETURN(PowerSgdBucket fresh,
                          LayOutPowerSgdBucket(bucket, options_, group));
  for (const LowRankGradient& each : fresh.low_rank) {
    TANDEM_RETURN_IF_ERROR(CatchTorch([&] { return Restore(each); }));
  }
  return memory_.Keep(bucket, std::move(fresh));
}

absl::Status PowerSgdState::Restore(const LowRankGradient& each) {
  Kept& kept = kept_[each.name];
  if (options_.warm_start) {
    if (!kept.q.defined()) RandomizeQ(each, options_, stats_.iter);
    TANDEM_RETURN_IF_ERROR(
        CopyIfFits(absl::StrCat(each.name, kQ), kept.q, each.q));
    kept.q = each.q;
  }
  if (options_.use_error_feedback) {
    TANDEM_RETURN_IF_ERROR(CopyIfFits(absl::StrCat(each.name, kError),
                                      kept.error, each.error_view));
    kept.error = each.error_view;
  }
  return absl::OkStatus();
}

NamedTensors PowerSgdState::State() const {
  NamedTensors state = {
      {kIter, at::scalar_tensor(stats_.iter, at::kLong)},
      {kBefore, at::scalar_tensor(stats_.numel_before_compression, at::kLong)},
      {kAfter, at::scalar_tensor(stats_.numel_after_compression, at::kLong)}};
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    state.emplace_back(name, tensor.clone(at::MemoryFormat::Contiguous));
  };
  for (const auto& [name, kept] : kept_) {
    add(absl::StrCat(name, kQ), kept.q);
    add(absl::StrCat(name, kError), kept.error);
  }
  return state;
}

absl::Status PowerSgdState::LoadState(const NamedTensors& state) {
  CompressionStats stats;
  TANDEM_ASSIGN_OR_RETURN(stats.iter, Count(state, kIter));
  TANDEM_ASSIGN_OR_RETURN(stats.numel_before_compression,
                          Count(state, kBefore));
  TANDEM_ASSIGN_OR_RETURN(stats.numel_after_compression, Count(state, kAfter));
  KeptByName kept;
  for (const auto& [name, tensor] : state) {
    if (name == kIter || name == kBefore || name == kAfter) continue;
    absl::string_view parameter = name;
    const bool floating = tensor.defined() && tensor.is_floating_point();
    if (floating && tensor.dim() == 2 && absl::ConsumeSuffix(&parameter, kQ)) {
      kept[std::string(parameter)].q = tensor.clone();
    } else if (floating && absl::ConsumeSuffix(&parameter, kError)) {
      kept[std::string(parameter)].error = tensor.clone();
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "PowerSGD state ", name, " has no place here: got ",
          DescribeTensor(tensor),
          ", expected PARAMETER.q with two dimensions, or PARAMETER.error"));
    }
  }
  stats_ = stats;
  kept_ = std::move(kept);
  memory_.Clear();
  return absl::OkStatus();
}

PowerSgd::PowerSgd(std::shared_ptr<PowerSgdState> state)
    : state_(std::move(state)) {}

absl::StatusOr<PowerSgd> PowerSgd::Create(const PowerSgdOptions& options) {
  if (options.matrix_approximation_rank < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("matrix_approximation_rank must be at least 1, got ",
                     options.matrix_approximation_rank));
  }
  if (options.start_power_sgd_iter < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("start_power_sgd_iter must not be negative, got ",
                     options.start_power_sgd_iter));
  }
  if (!(options.min_compression_rate > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_compression_rate must be greater than 0, got ",
                     options.min_compression_rate));
  }
  TANDEM_RETURN_IF_ERROR(CheckNotNegative("orthogonalization_epsilon",
                                          options.orthogonalization_epsilon));
  return PowerSgd(std::make_shared<PowerSgdState>(options));
}

CommunicationHook PowerSgd::Hook() const {
  return [state = state_](const GradBucket& bucket, Communicator& group) {
    return state->Start(bucket, group);
  };
}

CompressionStats PowerSgd::Stats() const { return state_->stats(); }

NamedTensors PowerSgd::State() const { return state_->State(); }

absl::Status PowerSgd::LoadState(const NamedTensors& state) {
  return state_->LoadState(state);
}

}  // namespace tandem
