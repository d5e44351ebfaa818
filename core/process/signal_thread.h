// Signal thread: the one thread of a process that runs its signal handlers; and
// small functions on signals.

#ifndef TANDEM_CORE_PROCESS_SIGNAL_THREAD_H_
#define TANDEM_CORE_PROCESS_SIGNAL_THREAD_H_

#include <sys/types.h>

#include <chrono>

namespace tandem {

// Starts it, once. Blocks SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD
// and SIGTSTP in the calling thread, and so in every thread that is made from
// there on; handlers of these run on the signal thread alone, and what has no
// handler has the effect that it always has. In process 1 of a container, where
// the kernel drops a signal that has no handler, SIGHUP, SIGINT, SIGTERM and
// SIGUSR1 end the process until it handles them.
//
// Call it first in main: RunRanks and RunProgram do. A thread that exists
// already may still be interrupted by a handler.
//
// Why: the kernel writes a handler's frame below the stack pointer of the
// thread that it interrupts, and a generated kernel may have moved that pointer
// into a heap buffer (oneDNN's float32 products did before 3.11.2,
// https://github.com/uxlfoundation/oneDNN/issues/4845): a computation must not
// be interrupted by a handler.
//
// A forked child has the signal mask that this process had before. What starts
// programs without fork (posix_spawn, system) hands the blocked signals on.
void StartSignalThread();

// Whether this process has it: a thread that a forked child lacks, and can do
// without.
bool HasSignalThread();

// A sender that signals all processes of a job (systemd, timeout, PBS) reaches
// a rank twice, as its launcher passes the signal on: what comes so soon after
// the first of its kind is an echo of it, and no second request.
constexpr std::chrono::seconds kSignalEcho(2);

// Whether the process does something of its own on that signal, by /proc: false
// where the process has gone, or /proc does not tell.
bool CatchesSignal(pid_t pid, int signal);

// Ends the process as if the signal were not handled: whoever waits for the
// process sees the signal. Process 1 of a container, which no signal of its own
// ends, exits with 128 + its number. May be called in a signal handler.
[[noreturn]] void EndBySignal(int signal_number);

}  // namespace tandem

#endif  // TANDEM_CORE_PROCESS_SIGNAL_THREAD_H_
