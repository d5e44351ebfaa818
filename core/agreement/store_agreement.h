// Agreement of a group's ranks on named values, through the store where they
// meet: before anything is made that depends on these values.

#ifndef TANDEM_CORE_AGREEMENT_STORE_AGREEMENT_H_
#define TANDEM_CORE_AGREEMENT_STORE_AGREEMENT_H_

#include <chrono>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/agreement/agreement.h"
#include "core/health/group_member.h"

namespace tandem {

// CompareValues over the ranks of the group, with the same result on each of
// them. Hashes are gathered (core/store/gather.h), and the values themselves
// only where these differ: a rank asks the store for O(1) things.
//
// Once for a group, after MeetAtStore. DeadlineExceeded after `timeout` names
// the ranks that have left nothing; else what is wrong with the store, and who
// serves it.
absl::Status AgreeAtStore(const GroupMember& member, const NamedValues& mine,
                          absl::string_view what,
                          std::chrono::milliseconds timeout);

}  // namespace tandem

#endif  // TANDEM_CORE_AGREEMENT_STORE_AGREEMENT_H_
