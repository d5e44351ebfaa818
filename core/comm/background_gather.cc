#include "core/comm/background_gather.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/health/group_member.h"
#include "core/health/job_notes.h"
#include "core/store/gather.h"

namespace tandem {

std::string BackgroundGather::GatherKey(int round, int gather) const {
  return absl::StrCat(what_, "/", round, "/", gather);
}

void BackgroundGather::BeginRound() {
  if (round_ >= 0) gathers_made_.push_back(gathers_);
  ++round_;
  gathers_ = 0;
  if (round_ < 2 || group_->rank() != 0 || group_->size() == 1) return;
  for (int i = 0; i < gathers_made_[static_cast<size_t>(round_ - 2)]; ++i) {
    ForgetGather(*group_->store(), GatherKey(round_ - 2, i));
  }
}

// What a job's ranks note stands on the store of the group of all.
bool BackgroundGather::IsOver() {
  const GroupMember member =
      MemberOfWhole(group_->store(), group_->rank(), group_->size());
  const absl::Status asked =
      CatchTorch([&] { failure_ = FailureInJob(member); });
  return stopped_ || !failure_.empty() || !asked.ok();
}

absl::StatusOr<std::vector<std::string>> BackgroundGather::Gather(
    const std::string& mine) {
  const std::string key = GatherKey(round_, gathers_++);
  if (group_->size() == 1) return std::vector<std::string>{mine};
  TANDEM_ASSIGN_OR_RETURN(
      const GatheredTexts all,
      GatherAtStore(*group_->store(), key, group_->rank(), group_->size(), mine,
                    timeout_, [this] { return IsOver(); }));
  std::vector<std::string> texts;
  std::vector<int> missing;
  for (int rank = 0; rank < group_->size(); ++rank) {
    const auto& text = all[static_cast<size_t>(rank)];
    if (!text.has_value()) missing.push_back(group_->NameOf(rank));
    texts.push_back(text.value_or(""));
  }
  if (missing.empty()) return texts;
  if (!failure_.empty()) return absl::AbortedError(failure_);
  const std::string why =
      absl::StrCat(what_, ": not heard of: ", RankList(missing));
  return stopped_ ? absl::CancelledError(why)
                  : absl::DeadlineExceededError(why);
}

}  // namespace tandem
