// Interrupts: Ctrl-C and other signals, taken as a wish to stop at the next
// safe point.

#ifndef TANDEM_CORE_PROGRAM_INTERRUPT_H_
#define TANDEM_CORE_PROGRAM_INTERRUPT_H_

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tandem {

// Handles SIGINT, SIGTERM, SIGHUP and SIGUSR1 (a scheduler's word that the
// job's time ends) from now on: the first one sets the wish to stop, a second
// one of a kind ends the process as if it were not handled, unless it comes
// within kSignalEcho of the first, or from the launcher. One that the process
// was started to ignore stays ignored. For programs: a library leaves signals
// alone.
//
// Starts the signal thread (core/process/signal_thread.h) where that has not
// been done: then threads that are there already may run the handler.
void HandleInterrupts();

// How long after a wish to stop that presses (IsInterruptPressing) a wait for
// other ranks goes on: 5 s unless set. Thread-safe.
void SetInterruptGrace(absl::Duration grace);
absl::Duration InterruptGrace();

// The signal that asked to stop, or 0.
int InterruptSignal();
// Whether what asked to stop kills whoever takes long over it: SIGINT, SIGTERM
// or SIGHUP, and not SIGUSR1 alone, by which a scheduler or a launcher gives as
// much time as it takes.
bool IsInterruptPressing();
// It is `signal` from now on: what the ranks that stop together have agreed on.
void AdoptInterrupt(int signal);

// What a job that stops at InterruptSignal() ends with: Cancelled, with the
// signal's name.
absl::Status InterruptError();

// For who breaks off a wait for other ranks because of InterruptSignal(): the
// error of that wait then tells more than InterruptError(). Thread-safe.
void NoteInterruptedWait();
bool HasInterruptedWait();

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_INTERRUPT_H_
