#include "core/agreement/store_agreement.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/call_within.h"
#include "core/base/some_of.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
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
  std::vector<std::string> all;
  std::vector<int> missing;
  for (int r = 0; r < member.size; ++r) {
    const auto& text = (*texts)[static_cast<size_t>(r)];
    if (!text.has_value()) missing.push_back(r);
    all.push_back(text.value_or(""));
  }
  if (missing.empty()) return all;
  return absl::DeadlineExceededError(
      absl::StrCat("the ranks' ", question.what, " were not compared within ",
                   absl::FormatDuration(absl::FromChrono(question.timeout)),
                   ": not heard of: ", RankList(member.NamesOf(missing))));
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

}  // namespace tandem
