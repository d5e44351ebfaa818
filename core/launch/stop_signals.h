// Stop signals: those by which a launcher is asked to end its ranks.

#ifndef TANDEM_CORE_LAUNCH_STOP_SIGNALS_H_
#define TANDEM_CORE_LAUNCH_STOP_SIGNALS_H_

#include <chrono>

#include "core/process/signal_pipe.h"

namespace tandem {

// Whether a signal asks ranks to end.
bool StopsRanks(int signal);
// Those of them that a second of ends ranks at once.
bool KillsRanks(int signal);

// Waits, between attempts, until one comes that stops, which is returned, or
// until `delay` is over: 0. Ctrl-Z stops this process meanwhile.
int AwaitStopSignal(SignalPipe& signals, std::chrono::milliseconds delay);

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_STOP_SIGNALS_H_
