// Failure note: what a failed rank leaves on the store for the others, as
// fields and not as a sentence: who decides by it reads the fields, who shows
// it ToString().

#ifndef TANDEM_CORE_HEALTH_FAILURE_NOTE_H_
#define TANDEM_CORE_HEALTH_FAILURE_NOTE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem {

struct FailureNote {
  enum class Kind {
    kFailed,  // what it waited for failed: maybe for another rank's sake
    kGaveUp,  // it has a reason of its own
    kDied,    // its launcher says so
  };

  Kind kind = Kind::kFailed;
  int rank = 0;  // its number in the job
  // kFailed: in which group (as messages call it, and by GroupMember::Id(),
  // which tells groups of one name apart), and in which operation.
  std::string group;
  std::string group_id;
  std::string operation;
  // kGaveUp: why. kDied: how.
  std::string text;

  // 'rank 0 failed in barrier #7 of group "world"', "rank 3 gave up: disk
  // full", "rank 1 died: killed by signal 9 (SIGKILL)".
  std::string ToString() const;

  // One after the other they are a list.
  std::string Encode() const;
};

// Those of a list, in its order; what stands behind something that is no note
// is left out.
std::vector<FailureNote> DecodeFailureNotes(absl::string_view list);

}  // namespace tandem

#endif  // TANDEM_CORE_HEALTH_FAILURE_NOTE_H_
