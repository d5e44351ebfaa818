// Ends this process by a signal that it handles.

#ifndef TANDEM_CORE_PROCESS_END_BY_SIGNAL_H_
#define TANDEM_CORE_PROCESS_END_BY_SIGNAL_H_

namespace tandem {

// As if it were not handled: whoever waits for the process sees the signal.
// Process 1 of a container, which no signal of its own ends, exits with 128 +
// its number. May be called in a signal handler.
[[noreturn]] void EndBySignal(int signal_number);

}  // namespace tandem

#endif  // TANDEM_CORE_PROCESS_END_BY_SIGNAL_H_
