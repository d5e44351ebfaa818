// Ctrl-C and friends, taken as a wish to stop at the next safe point.

#ifndef TANDEM_CORE_PROGRAM_INTERRUPT_H_
#define TANDEM_CORE_PROGRAM_INTERRUPT_H_

#include "absl/status/status.h"

namespace tandem {

// Handles SIGINT and SIGTERM from now on: the first one sets the wish to stop,
// a second one ends the process as if it were not handled. One that the process
// was started to ignore stays ignored. For programs: a library leaves signals
// alone.
void HandleInterrupts();

// The signal that asked to stop, or 0.
int InterruptSignal();

// What a job that stops at InterruptSignal() ends with: Cancelled, with the
// signal's name.
absl::Status InterruptError();

// For who breaks off a wait for other ranks because of InterruptSignal(): the
// error of that wait then tells more than InterruptError(). Thread-safe.
void NoteInterruptedWait();
bool HasInterruptedWait();

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_INTERRUPT_H_
