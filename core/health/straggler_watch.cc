#include "core/health/straggler_watch.h"

#include <glog/logging.h>

#include <algorithm>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/call_within.h"
#include "core/base/short_list.h"
#include "core/base/torch_status.h"
#include "core/store/server.h"
#include "core/store/store.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// How long a store may take that answers: the collective may end meanwhile.
constexpr milliseconds kStorePatience = std::chrono::seconds(1);

// The end of `work`, if it comes in time.
std::optional<absl::Status> WaitAtMost(c10d::Work& work, milliseconds time) {
  const absl::Status status = CatchTorch([&] { work.wait(time); });
  if (status.ok()) return status;
  if (!work.isCompleted()) return std::nullopt;
  // What was caught may still be the timeout of this wait.
  return CatchTorch([&] { work.wait(); });
}

std::string NoteKey(int rank) { return absl::StrCat("waiting/", rank); }

// Whether `rank` is the first to tell of the collective. One key for all of
// them: a job of months with a slow rank would fill the store.
bool IsFirstToTell(c10d::Store& store, int64_t sequence, int rank) {
  constexpr char kKey[] = "late";
  const std::string told = TextAt(store, kKey);
  if (!told.empty() && std::stoll(told) >= sequence) return false;
  const std::string mine = absl::StrCat(sequence, " by ", rank);
  return store.compareSet(kKey, told, mine) == mine;
}

std::string TimeSince(Clock::time_point start) {
  const absl::Duration time = absl::FromChrono(Clock::now() - start);
  return absl::FormatDuration(absl::Trunc(time, absl::Milliseconds(10)));
}

}  // namespace

StragglerWatch::StragglerWatch(GroupMember member, milliseconds threshold)
    : member_(std::move(member)), threshold_(threshold) {}

absl::Status StragglerWatch::Wait(c10d::Work& work, int64_t sequence,
                                  absl::FunctionRef<std::string()> what) {
  const Clock::time_point start = Clock::now();
  const milliseconds eighth = std::max(threshold_ / 8, milliseconds(1));
  if (auto end = WaitAtMost(work, eighth)) return *end;
  LeaveNote(sequence);
  if (auto end = WaitAtMost(work, threshold_)) return *end;
  const Finding found = LookForLateRanks(sequence);
  if (!found.mine) return CatchTorch([&] { work.wait(); });
  const int me = member_.NameOf(member_.rank);
  const std::string of_group =
      absl::StrCat(what(), " of group \"", member_.name, "\"");
  if (found.late.empty()) {
    LOG(WARNING) << "rank " << me << " has waited " << TimeSince(start)
                 << " for " << of_group << "; "
                 << (silence_.ok() ? "every rank has come to it"
                                   : DescribeSilence(member_.store, silence_));
    return CatchTorch([&] { work.wait(); });
  }
  LOG(WARNING) << RankList(found.late)
               << (found.late.size() == 1 ? " is" : " are") << " late: rank "
               << me << " has waited " << TimeSince(start) << " for "
               << of_group;
  absl::Status end = CatchTorch([&] { work.wait(); });
  if (end.ok()) {
    LOG(WARNING) << RankList(found.late)
                 << (found.late.size() == 1 ? " was " : " were ")
                 << TimeSince(start) << " late for " << of_group;
  }
  return end;
}

void StragglerWatch::LeaveNote(int64_t sequence) {
  if (!silence_.ok()) return;
  // If the store is silent, that is said where the note would be read.
  CallWithin<bool>(kStorePatience, [store = member_.store,
                                    key = NoteKey(member_.rank), sequence] {
    store->set(key, absl::StrCat(sequence));
    return true;
  }).IgnoreError();
}

StragglerWatch::Finding StragglerWatch::LookForLateRanks(int64_t sequence) {
  if (!silence_.ok()) return {};
  const auto found = CallWithin<Finding>(kStorePatience, [member = member_,
                                                          sequence] {
    c10d::Store& store = *member.store;
    Finding finding;
    finding.mine = IsFirstToTell(store, sequence, member.rank);
    for (int r = 0; finding.mine && r < member.size; ++r) {
      const std::string key = NoteKey(r);
      // One that waits for a later collective is ahead.
      if (!store.check({key}) || std::stoll(store.get_to_str(key)) < sequence) {
        finding.late.push_back(member.NameOf(r));
      }
    }
    return finding;
  });
  silence_ = found.status();
  // A rank that cannot ask tells what it knows.
  return found.ok() ? *found : Finding{/*mine=*/true, {}};
}

}  // namespace tandem
