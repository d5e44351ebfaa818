// Flight dumps on signals: on SIGUSR2, and at a death by a fatal signal.

#ifndef TANDEM_CORE_FLIGHT_SIGNALS_H_
#define TANDEM_CORE_FLIGHT_SIGNALS_H_

namespace tandem {

// From now on SIGUSR2 has this process write a flight dump (dump_file.h) and go
// on; SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT (a failed CHECK) have it
// write one, within 3 seconds, and die as they would. A thread of its own
// writes: a handler may do next to nothing. SIGUSR2 that the process was
// started to ignore stays ignored.
//
// The handler of SIGUSR2 runs on the signal thread
// (core/process/signal_thread.h), which this starts where it is not there yet.
// For programs, once, from main: a library leaves signals alone.
void HandleFlightSignals();

}  // namespace tandem

#endif  // TANDEM_CORE_FLIGHT_SIGNALS_H_
