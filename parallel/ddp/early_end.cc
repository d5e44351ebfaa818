#include "parallel/ddp/early_end.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tandem {

absl::Status ExplainEarlyEnd(const absl::Status& status, int64_t backwards) {
  // The words are the backend's and the collective check's.
  const bool has_left = absl::IsUnavailable(status) &&
                        absl::EndsWith(status.message(), "left the group");
  if (!has_left) return status;
  return absl::UnavailableError(absl::StrCat(
      status.message(), ": it took part in ", backwards,
      " averaged backwards, and this is number ", backwards + 1,
      " here; give every rank as many batches, or use Join (docs/join.md)"));
}

}  // namespace tandem
