// Signals of other processes and of this one: whether one is caught, and an end
// by one that is handled.

#ifndef TANDEM_CORE_PROCESS_SIGNALS_H_
#define TANDEM_CORE_PROCESS_SIGNALS_H_

#include <sys/types.h>

namespace tandem {

// Whether it does something of its own on that signal, by /proc: false where
// the process has gone, or /proc does not tell.
bool CatchesSignal(pid_t pid, int signal);

// Ends the process as if the signal were not handled: whoever waits for the
// process sees the signal. Process 1 of a container, which no signal of its own
// ends, exits with 128 + its number. May be called in a signal handler.
[[noreturn]] void EndBySignal(int signal_number);

}  // namespace tandem

#endif  // TANDEM_CORE_PROCESS_SIGNALS_H_
