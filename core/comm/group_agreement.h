// Agreement of a group's ranks on named values, by a collective.

#ifndef TANDEM_CORE_COMM_GROUP_AGREEMENT_H_
#define TANDEM_CORE_COMM_GROUP_AGREEMENT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/agreement/agreement.h"
#include "core/comm/communicator.h"

namespace tandem {

// CompareValues over the ranks of `group`, with the same result on each of
// them; or the collective's error. Sends a hash; the values themselves only
// where hashes differ. Collective.
absl::Status AgreeInGroup(const NamedValues& mine, absl::string_view what,
                          Communicator& group);

// The Verdict (core/agreement/agreement.h) of the ranks of `group`: OK, the
// same on each, where all of them are; or the collective's error. Collective.
absl::Status AgreeOnSuccess(const absl::Status& mine, absl::string_view what,
                            Communicator& group);

}  // namespace tandem

#endif  // TANDEM_CORE_COMM_GROUP_AGREEMENT_H_
