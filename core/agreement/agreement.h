// Agreement of ranks: values with names, such as settings, that must be the
// same on all of them; what to send, and how to say where they differ.
//
// core/comm/group_connection.h compares them through a store, before there
// is a group; core/comm/group_agreement.h within a group.

#ifndef TANDEM_CORE_AGREEMENT_AGREEMENT_H_
#define TANDEM_CORE_AGREEMENT_AGREEMENT_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// Texts by the names that a message calls them by: {"--seed", "0"}.
using NamedValues = std::map<std::string, std::string>;

// The values as one text, the same for the same values, and back. Any bytes may
// stand in names and values. InvalidArgument for what EncodeValues did not
// write.
std::string EncodeValues(const NamedValues& values);
absl::StatusOr<NamedValues> DecodeValues(absl::string_view text);

// SHA-256 of that text: what ranks send first.
std::string ValuesFingerprint(const NamedValues& values);

// OK where all ranks have the same. Else InvalidArgument, which names each
// value that differs, the ranks, and what each of them has:
//
//   the ranks' settings differ: --seed is 0 on rank 0, 5 on ranks 1, 2; give
//   all ranks the same
//
// Many ranks, values and differences, and long texts, are cut short. `by_rank`
// are every rank's values, `names` what messages call the ranks (empty: as they
// count), `what` what the values are: "settings".
absl::Status CompareValues(const std::vector<NamedValues>& by_rank,
                           const std::vector<int>& names,
                           absl::string_view what);

// Verdict of ranks: whether each of them has succeeded, as one Status that is
// the same on all.

// A status as a text, for an all-gather.
std::string EncodeStatus(const absl::Status& status);

// The status of the first rank that has failed, with "rank R: " before its
// message where there are several; OK where none has. Internal for a text that
// EncodeStatus did not make.
absl::Status Verdict(const std::vector<std::string>& by_rank);

}  // namespace tandem

#endif  // TANDEM_CORE_AGREEMENT_AGREEMENT_H_
