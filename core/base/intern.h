// Interned texts: one copy of each, which lives as long as the process, for
// what keeps texts and copies none.

#ifndef TANDEM_CORE_BASE_INTERN_H_
#define TANDEM_CORE_BASE_INTERN_H_

#include "absl/strings/string_view.h"

namespace tandem {

// The copy of this text: the same one each time. It is never freed, so texts
// are to be of a bounded number, names of layers say. Thread-safe; costs a lock
// and a look-up, and allocates only for a new text.
const char* Intern(absl::string_view text);

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_INTERN_H_
