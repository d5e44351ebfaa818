#include "parallel/join/join.h"

#include <ATen/ops/zeros.h>
#include <glog/logging.h>

#include <cstddef>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/instrument/fault_point.h"

namespace tandem {
namespace {

// Torch's: so many iterations without this rank are worth a word.
constexpr int64_t kManyShadowed = 1000;

// Told apart from an OutOfRange of a layer by this.
constexpr char kEarlyTermination[] = "tandem/join/early_termination";

absl::Status EarlyTermination(const std::string& message) {
  absl::Status status = absl::OutOfRangeError(message);
  status.SetPayload(kEarlyTermination, absl::Cord());
  return status;
}

}  // namespace

bool IsEarlyTermination(const absl::Status& status) {
  return status.GetPayload(kEarlyTermination).has_value();
}

absl::StatusOr<Join> Join::Begin(const std::vector<Joinable*>& joinables,
                                 const JoinOptions& options) {
  if (joinables.empty()) {
    return absl::InvalidArgumentError("a Join needs one joinable at least");
  }
  Join join(joinables.front()->join_group(), options);
  if (!options.enable) {
    join.ended_ = true;
    return join;
  }
  join.ended_ = true;  // until all is there, nobody waits
  for (Joinable* each : joinables) {
    if (&each->join_group() != join.group_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the joinables of a Join have one group, but there are ",
          join.group_->name(), " and ", each->join_group().name()));
    }
    TANDEM_ASSIGN_OR_RETURN(auto hook, each->MakeJoinHook(options));
    join.hooks_.push_back(std::move(hook));
  }
  join.ended_ = false;
  return join;
}

Join::Join(Join&& other) noexcept
    : group_(std::exchange(other.group_, nullptr)),
      options_(other.options_),
      hooks_(std::move(other.hooks_)),
      ended_(other.ended_),
      iterations_(other.iterations_),
      shadowed_(other.shadowed_) {}

Join::~Join() {
  if (group_ == nullptr || ended_) return;
  group_->Abort(absl::AbortedError(absl::StrCat(
      "rank ", group_->NameOf(group_->rank()),
      " left its Join before the end, in iteration ", iterations_)));
}

absl::StatusOr<std::vector<bool>> Join::Exchange(bool has_batch) {
  TANDEM_RETURN_IF_ERROR(FaultPoint("join"));
  const at::Tensor counts = at::zeros({group_->size()}, at::kInt);
  auto* const mine = counts.mutable_data_ptr<int32_t>();
  mine[group_->rank()] = has_batch ? 1 : 0;
  const int64_t number = iterations_ + shadowed_ + 1;
  TANDEM_RETURN_IF_ERROR(group_->AllReduceSum(counts, [number] {
    return absl::StrCat("who has a batch for iteration ", number, " (Join)");
  }));
  return std::vector<bool>(mine, mine + group_->size());
}

void Join::Tell(const std::vector<bool>& active) {
  for (const auto& hook : hooks_) hook->BeginIteration(active);
}

// After an error the destructor has nothing to tell that the error has not.
absl::Status Join::End(absl::Status status) {
  ended_ = true;
  hooks_.clear();  // the joinables go on without
  if (!status.ok() && !IsEarlyTermination(status)) group_->Abort(status);
  return status;
}

absl::Status Join::NotifyBatch() {
  if (options_.enable && ended_) {
    return absl::FailedPreconditionError(
        "this Join has ended: begin another one");
  }
  if (!options_.enable) return absl::OkStatus();
  const auto active = Exchange(true);
  if (!active.ok()) return End(active.status());
  if (options_.throw_on_early_termination &&
      absl::c_linear_search(*active, false)) {
    return End(EarlyTermination(
        "Detected at least one rank that exhausted inputs. Throwing across all "
        "ranks."));
  }
  ++iterations_;
  Tell(*active);
  return absl::OkStatus();
}

absl::Status Join::Shadow() {
  bool is_last = true;
  for (;;) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<bool> active, Exchange(false));
    if (!absl::c_linear_search(active, true)) break;
    if (options_.throw_on_early_termination) {
      return EarlyTermination(absl::StrCat(
          "Rank ", group_->NameOf(group_->rank()), " exhausted all inputs."));
    }
    is_last = false;
    Tell(active);
    for (const auto& hook : hooks_) {
      TANDEM_RETURN_IF_ERROR(CatchTorch([&] { return hook->MainHook(); }));
    }
    if (++shadowed_ == kManyShadowed) {
      LOG(WARNING) << "rank " << group_->NameOf(group_->rank()) << " has had "
                   << kManyShadowed << " batches fewer than others";
    }
  }
  for (const auto& hook : hooks_) {
    TANDEM_RETURN_IF_ERROR(CatchTorch([&] { return hook->PostHook(is_last); }));
  }
  return absl::OkStatus();
}

absl::Status Join::Finish() {
  if (!options_.enable) return absl::OkStatus();
  if (ended_) {
    return absl::FailedPreconditionError("this Join has ended already");
  }
  return End(Shadow());
}

}  // namespace tandem
