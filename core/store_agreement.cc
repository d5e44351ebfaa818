#include "core/store_agreement.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/call_within.h"
#include "core/roll_call.h"
#include "core/status_macros.h"
#include "core/store_server.h"
#include "core/torch_status.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

// What a store that answers needs beyond the timeout to say that it has passed.
constexpr milliseconds kGrace = std::chrono::seconds(5);
// What ranks that have been told to look need to read a note.
constexpr milliseconds kReadTime = std::chrono::seconds(2);

constexpr char kHash[] = "agreement/hash/";
constexpr char kValues[] = "agreement/values/";
constexpr char kRead[] = "agreement/read/";
constexpr char kVerdict[] = "agreement/verdict";
constexpr char kDifference[] = "agreement/difference";

constexpr char kSame[] = "same";
constexpr char kDiffer[] = "differ";

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

std::vector<std::string> KeysOfAll(const char* prefix, int size) {
  std::vector<std::string> keys;
  for (int r = 0; r < size; ++r) keys.push_back(absl::StrCat(prefix, r));
  return keys;
}

// Leaves this rank's note of the kind `prefix`.
void Leave(const GroupMember& member, const char* prefix,
           const std::string& text) {
  member.store->set(absl::StrCat(prefix, member.rank), text);
}

// What a wait ended with; after a timeout it names the ranks that have left no
// note.
absl::Status NameMissing(const Question& question, const absl::Status& status,
                         const char* prefix) {
  const GroupMember& member = question.member;
  if (status.ok()) return status;
  if (!absl::IsDeadlineExceeded(status)) {
    return Annotate(status, DescribeSilence(member.store, status));
  }
  std::vector<int> missing;
  for (int r = 0; r < member.size; ++r) {
    if (!member.store->check({absl::StrCat(prefix, r)})) missing.push_back(r);
  }
  // All have: then rank 0 did not compare them.
  if (missing.empty()) missing.push_back(0);
  return absl::DeadlineExceededError(
      absl::StrCat("the ranks' ", question.what, " were not compared within ",
                   absl::FormatDuration(absl::FromChrono(question.timeout)),
                   ": not heard of: ", RankList(member.NamesOf(missing))));
}

// Every rank's note of that kind, by rank.
absl::StatusOr<std::vector<std::string>> AwaitNotes(const Question& question,
                                                    const char* prefix) {
  c10d::Store& store = *question.member.store;
  const std::vector<std::string> keys = KeysOfAll(prefix, question.member.size);
  const absl::Status came =
      CatchTorch([&] { store.wait(keys, question.timeout); });
  TANDEM_RETURN_IF_ERROR(NameMissing(question, came, prefix));
  std::vector<std::string> notes;
  for (const auto& bytes : store.multiGet(keys)) {
    notes.emplace_back(bytes.begin(), bytes.end());
  }
  return notes;
}

// What rank 0 says under this key.
absl::StatusOr<std::string> AwaitRankZero(const Question& question,
                                          const char* key) {
  c10d::Store& store = *question.member.store;
  const absl::Status came =
      CatchTorch([&] { store.wait({key}, question.timeout); });
  TANDEM_RETURN_IF_ERROR(NameMissing(question, came, kHash));
  return store.get_to_str(key);
}

// On rank 0, which may serve the store: it stays until the others have read.
absl::Status CompareAll(const Question& question) {
  const GroupMember& member = question.member;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> hashes,
                          AwaitNotes(question, kHash));
  const bool same = std::adjacent_find(hashes.begin(), hashes.end(),
                                       std::not_equal_to<>()) == hashes.end();
  member.store->set(kVerdict, std::string(same ? kSame : kDiffer));
  if (same) return absl::OkStatus();
  Leave(member, kValues, EncodeValues(question.mine));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                          AwaitNotes(question, kValues));
  std::vector<NamedValues> by_rank;
  for (const std::string& text : texts) {
    TANDEM_ASSIGN_OR_RETURN(by_rank.emplace_back(), DecodeValues(text));
  }
  const absl::Status compared =
      CompareValues(by_rank, member.rank_names, question.what);
  member.store->set(kDifference, std::string(compared.message()));
  Leave(member, kRead, "1");
  CatchTorch([&] {
    member.store->wait(KeysOfAll(kRead, member.size), kReadTime);
  }).IgnoreError();
  return compared;
}

absl::Status AskRankZero(const Question& question) {
  const GroupMember& member = question.member;
  TANDEM_ASSIGN_OR_RETURN(const std::string verdict,
                          AwaitRankZero(question, kVerdict));
  if (verdict == kSame) return absl::OkStatus();
  Leave(member, kValues, EncodeValues(question.mine));
  TANDEM_ASSIGN_OR_RETURN(const std::string difference,
                          AwaitRankZero(question, kDifference));
  Leave(member, kRead, "1");
  return absl::InvalidArgumentError(difference);
}

}  // namespace

absl::Status AgreeAtStore(const GroupMember& member, const NamedValues& mine,
                          absl::string_view what, milliseconds timeout) {
  const Question question = {member, mine, std::string(what), timeout};
  // Waits for hashes, and then for the values of those that differ.
  const absl::StatusOr<Outcome> outcome =
      CallWithin<Outcome>(2 * timeout + kGrace, [question] {
        Leave(question.member, kHash, ValuesFingerprint(question.mine));
        return Outcome{question.member.rank == 0 ? CompareAll(question)
                                                 : AskRankZero(question)};
      });
  if (outcome.ok()) return outcome->status;
  return Annotate(outcome.status(),
                  DescribeSilence(member.store, outcome.status()));
}

}  // namespace tandem
