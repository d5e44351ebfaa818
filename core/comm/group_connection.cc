#include "core/comm/group_connection.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/backend/backend.h"
#include "core/backend/backend_names.h"
#include "core/base/call_within.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/health/group_failures.h"
#include "core/health/group_member.h"
#include "core/instrument/fault_point.h"
#include "core/store/gather.h"
#include "core/store/server.h"

namespace tandem {

namespace {

using std::chrono::milliseconds;

// What a store that answers needs beyond the timeout to say that it has passed.
constexpr milliseconds kGrace = std::chrono::seconds(5);
// What ranks that have been told to look need to read a note.
constexpr milliseconds kReadTime = std::chrono::seconds(2);

struct Question {
  GroupMember member;
  NamedValues mine;
  std::string what;
  milliseconds timeout;
};

// What comparing ended with, as a value of the call that is bounded.
struct Outcome {
  absl::Status status;
};

// The texts by rank, empty where there is none. `missing` gets the names of the
// ranks that left none.
std::vector<std::string> TextsByRank(const GatheredTexts& texts,
                                     const GroupMember& member,
                                     std::vector<int>* missing) {
  std::vector<std::string> all;
  for (int r = 0; r < member.size; ++r) {
    const auto& text = texts[static_cast<size_t>(r)];
    if (!text.has_value()) missing->push_back(member.NameOf(r));
    all.push_back(text.value_or(""));
  }
  return all;
}

// Every rank's text, by rank. DeadlineExceeded names those that left none.
absl::StatusOr<std::vector<std::string>> Gather(const Question& question,
                                                const std::string& key,
                                                const std::string& mine) {
  const GroupMember& member = question.member;
  const absl::StatusOr<GatheredTexts> texts =
      GatherAtStore(*member.store, absl::StrCat("agreement/", key), member.rank,
                    member.size, mine, question.timeout);
  if (!texts.ok()) {
    return Annotate(texts.status(),
                    DescribeSilence(member.store, texts.status()));
  }
  std::vector<int> missing;
  std::vector<std::string> all = TextsByRank(*texts, member, &missing);
  if (missing.empty()) return all;
  return absl::DeadlineExceededError(
      absl::StrCat("the ranks' ", question.what, " were not compared within ",
                   absl::FormatDuration(absl::FromChrono(question.timeout)),
                   ": not heard of: ", RankList(missing)));
}

absl::Status Compare(const Question& question) {
  const GroupMember& member = question.member;
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> hashes,
      Gather(question, "hash", ValuesFingerprint(question.mine)));
  if (std::adjacent_find(hashes.begin(), hashes.end(), std::not_equal_to<>()) ==
      hashes.end()) {
    return absl::OkStatus();
  }
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> texts,
      Gather(question, "values", EncodeValues(question.mine)));
  // One of them may serve the store: it stays until the others have read.
  GatherAtStore(*member.store, "agreement/read", member.rank, member.size, "",
                kReadTime)
      .status()
      .IgnoreError();
  std::vector<NamedValues> by_rank;
  for (const std::string& text : texts) {
    TANDEM_ASSIGN_OR_RETURN(by_rank.emplace_back(), DecodeValues(text));
  }
  return CompareValues(by_rank, member.rank_names, question.what);
}

}  // namespace

absl::Status AgreeAtStore(const GroupMember& member, const NamedValues& mine,
                          absl::string_view what, milliseconds timeout) {
  const Question question = {member, mine, std::string(what), timeout};
  // Waits for hashes, and then for the values of those that differ.
  const absl::StatusOr<Outcome> outcome = CallWithin<Outcome>(
      2 * timeout + kGrace, [question] { return Outcome{Compare(question)}; });
  if (outcome.ok()) return outcome->status;
  return Annotate(outcome.status(),
                  DescribeSilence(member.store, outcome.status()));
}

namespace {

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

// Waits until all ranks of the group have called this and returns what each
// gave for `mine`, by rank. DeadlineExceeded after `timeout` names those that
// have not; AlreadyExists when this rank has called it before; else what is
// wrong with the store, and who serves it. A handful of operations on the store
// for each rank, however many there are.
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
  std::vector<int> missing;
  std::vector<std::string> all = TextsByRank(*texts, member, &missing);
  if (missing.empty()) return all;
  return absl::DeadlineExceededError(
      absl::StrCat(RankList(missing), " did not come within ",
                   absl::FormatDuration(absl::FromChrono(timeout)),
                   DescribeRejected(member.store)));
}

using MadeGroup = absl::StatusOr<c10::intrusive_ptr<c10d::ProcessGroup>>;

absl::Status CompareSettings(const GroupMember& member,
                             const CommunicatorOptions& options) {
  if (options.settings.empty()) return absl::OkStatus();
  return AgreeAtStore(member, options.settings, "settings", options.timeout);
}

MadeGroup MeetAndConnect(const GroupMember& member,
                         const CommunicatorOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const BackendNames names,
                          ParseBackend(options.backend));
  if (names.host == "alone") {  // it meets nobody
    const std::vector<std::string> hosts(static_cast<size_t>(member.size));
    return MakeProcessGroup(
        {member.store, member.rank, hosts, member.Id(), member.job}, options);
  }
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> hosts,
      MeetAtStore(member, options.host.empty() ? HostIdentity() : options.host,
                  options.timeout));
  TANDEM_RETURN_IF_ERROR(CompareSettings(member, options));
  TANDEM_RETURN_IF_ERROR(FaultPoint("connect"));
  return MakeProcessGroup(
      {member.store, member.rank, hosts, member.Id(), member.job}, options);
}

// What comes first, the group or the end of the job.
struct Race {
  absl::Mutex mutex;
  std::optional<MadeGroup> made ABSL_GUARDED_BY(mutex);
  std::string job_failed ABSL_GUARDED_BY(mutex);  // why; empty: it has not
};

MadeGroup ConnectWatched(const GroupMember& member,
                         const CommunicatorOptions& options, JobWatch* watch) {
  const auto race = std::make_shared<Race>();
  const JobWatch::Waiting waiting(watch);
  const int id = watch->Add([race](const std::string& why) {
    absl::MutexLock lock(&race->mutex);
    race->job_failed = why;
  });
  CallThread thread;
  thread.Start<bool>([race, member, options] {
    MadeGroup made =
        CatchTorchOr([&] { return MeetAndConnect(member, options); });
    absl::MutexLock lock(&race->mutex);
    race->made = std::move(made);
    return true;
  });
  const auto is_over = [&race] {
    race->mutex.AssertHeld();
    return race->made.has_value() || !race->job_failed.empty();
  };
  {
    absl::MutexLock lock(&race->mutex);
    race->mutex.Await(absl::Condition(&is_over));
  }
  // It may be calling what was added, which takes the lock.
  watch->Remove(id);
  absl::MutexLock lock(&race->mutex);
  if (race->made.has_value()) return *std::move(race->made);
  return absl::AbortedError(race->job_failed);
}

}  // namespace

std::chrono::milliseconds Patience(std::chrono::milliseconds timeout) {
  return std::min<std::chrono::milliseconds>(timeout, std::chrono::seconds(2));
}

MadeGroup ConnectGroup(const GroupMember& member,
                       const CommunicatorOptions& options, JobWatch* watch) {
  MadeGroup made = watch == nullptr ? MeetAndConnect(member, options)
                                    : ConnectWatched(member, options, watch);
  if (made.ok()) return made;
  const absl::Status failed = Annotate(
      made.status(),
      absl::StrCat("group \"", member.name, "\", ", member.ToString()));
  if (watch == nullptr) return failed;
  if (absl::IsAborted(failed)) {
    AwaitFailureRead(member, Patience(options.timeout));
  } else {
    ReportGivingUp(member, std::string(failed.message()));
    AwaitListeners(member, Patience(options.timeout));
  }
  return failed;
}

}  // namespace tandem
