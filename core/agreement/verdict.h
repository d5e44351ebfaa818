// Verdict of ranks: whether each of them has succeeded, as one Status that is
// the same on all.

#ifndef TANDEM_CORE_AGREEMENT_VERDICT_H_
#define TANDEM_CORE_AGREEMENT_VERDICT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

// A status as a text, for an all-gather.
std::string EncodeStatus(const absl::Status& status);

// That of the first rank that has failed, with "rank R: " before its message
// where there are several; OK where none has. Internal for a text that
// EncodeStatus did not make.
absl::Status Verdict(const std::vector<std::string>& by_rank);

}  // namespace tandem

#endif  // TANDEM_CORE_AGREEMENT_VERDICT_H_
