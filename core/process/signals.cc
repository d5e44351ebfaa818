#include "core/process/signals.h"

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace tandem {

bool CatchesSignal(pid_t pid, int signal) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  std::string line;
  while (std::getline(status, line)) {
    absl::string_view mask = line;
    if (!absl::ConsumePrefix(&mask, "SigCgt:")) continue;
    uint64_t bits = 0;
    return absl::SimpleHexAtoi(mask, &bits) &&
           ((bits >> (signal - 1)) & 1) != 0;
  }
  return false;
}

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
