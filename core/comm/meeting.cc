#include "core/comm/meeting.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/call_within.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/health/roll_call.h"
#include "core/instrument/fault_point.h"
#include "core/store/gather.h"
#include "core/store/server.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

// What a store that answers needs beyond the timeout to say that it has passed.
constexpr milliseconds kGrace = std::chrono::seconds(5);

absl::StatusOr<GatheredTexts> Meet(const GroupMember& member,
                                   const std::string& mine,
                                   milliseconds timeout) {
  c10d::Store& store = *member.store;
  if (store.add(absl::StrCat("joined/", member.rank), 1) > 1) {
    return absl::AlreadyExistsError(
        absl::StrCat("rank ", member.NameOf(member.rank),
                     " has joined a group of this name before"));
  }
  return GatherAtStore(store, "came", member.rank, member.size, mine, timeout);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> MeetAtStore(const GroupMember& member,
                                                     const std::string& mine,
                                                     milliseconds timeout) {
  TANDEM_RETURN_IF_ERROR(FaultPoint("meet"));
  const auto texts = CallWithin<GatheredTexts>(
      timeout + kGrace, [=] { return Meet(member, mine, timeout); });
  if (absl::IsAlreadyExists(texts.status())) return texts.status();
  if (!texts.ok()) {
    return Annotate(texts.status(),
                    DescribeSilence(member.store, texts.status()));
  }
  std::vector<std::string> all;
  std::vector<int> missing;
  for (int r = 0; r < member.size; ++r) {
    const auto& text = (*texts)[static_cast<size_t>(r)];
    if (!text.has_value()) missing.push_back(member.NameOf(r));
    all.push_back(text.value_or(""));
  }
  if (missing.empty()) return all;
  return absl::DeadlineExceededError(
      absl::StrCat(RankList(missing), " did not come within ",
                   absl::FormatDuration(absl::FromChrono(timeout)),
                   DescribeStrangers(member.store)));
}

}  // namespace tandem
