#include "core/process/end_by_signal.h"

#include <signal.h>
#include <unistd.h>

namespace tandem {

void EndBySignal(int signal_number) {
  signal(signal_number, SIG_DFL);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, signal_number);
  pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
  raise(signal_number);
  _exit(128 + signal_number);
}

}  // namespace tandem
