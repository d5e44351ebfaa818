// Verdict on a hang: who waits for whom, in which operation, since when, and
// which ranks are at fault.

#ifndef TANDEM_TOOLS_HANG_DIAGNOSIS_VERDICT_H_
#define TANDEM_TOOLS_HANG_DIAGNOSIS_VERDICT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/flight/dump.h"

namespace tandem {

struct Verdict {
  enum class Fault {
    kNone,        // nobody waits for a rank that has not come
    kUnknown,     // nothing was recorded: no dump has an entry
    kFailed,      // it failed by itself
    kAbsent,      // it has left no dump: killed, frozen, or out of reach
    kBehind,      // it has not come to the operation
    kLate,        // it came when others had given up
    kOtherShape,  // it started the operation with other sizes or another dtype
    kOtherOrder,  // it started another operation in its place
    kOtherGroup,  // it waits in another group, for ranks that wait for it
  };

  Fault fault = Fault::kNone;
  std::vector<int> culprits;  // in order
  std::vector<int> waiting;   // for the culprits, or for who waits for them
  std::string group;          // of the operation: its name
  FlightEntry operation;      // that the first of those waits in
  int64_t since_ns = 0;       // since when that one waits
  int64_t until_ns = 0;       // when it was dumped
  bool has_started = false;   // kBehind: but does nothing for it
  std::string reason;         // of kFailed, and of others' if they say
  // What the first culprit does instead, or did last.
  std::optional<FlightEntry> instead;
  std::string instead_group;  // empty: an action
};

// "absent", "other shape".
const char* NameOf(Verdict::Fault fault);

}  // namespace tandem

#endif  // TANDEM_TOOLS_HANG_DIAGNOSIS_VERDICT_H_
