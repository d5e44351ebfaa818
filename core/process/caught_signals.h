// Caught signals: which ones a process has a handler for.

#ifndef TANDEM_CORE_PROCESS_CAUGHT_SIGNALS_H_
#define TANDEM_CORE_PROCESS_CAUGHT_SIGNALS_H_

#include <sys/types.h>

namespace tandem {

// Whether it does something of its own on that signal, by /proc: false where
// the process has gone, or /proc does not tell.
bool CatchesSignal(pid_t pid, int signal);

}  // namespace tandem

#endif  // TANDEM_CORE_PROCESS_CAUGHT_SIGNALS_H_
