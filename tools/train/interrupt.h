// Ctrl-C and friends, taken as a wish to stop at the next safe point.

#ifndef TANDEM_TOOLS_TRAIN_INTERRUPT_H_
#define TANDEM_TOOLS_TRAIN_INTERRUPT_H_

namespace tandem {

// Handles SIGINT and SIGTERM from now on: the first one sets the wish to stop,
// a second one ends the process as if it were not handled. For programs: a
// library leaves signals alone.
void HandleInterrupts();

// The signal that asked to stop, or 0.
int InterruptSignal();

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAIN_INTERRUPT_H_
