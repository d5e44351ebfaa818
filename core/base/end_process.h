// End of the process without destructors of static objects.

#ifndef TANDEM_CORE_BASE_END_PROCESS_H_
#define TANDEM_CORE_BASE_END_PROCESS_H_

namespace tandem {

// Writes out what stdio and glog hold, and ends the process with this exit
// code. LibTorch alone would take 0.15 s to unregister its operators, which end
// with the process anyway. A main calls it when nothing is left to do; also
// where threads may still use static objects.
[[noreturn]] void EndProcess(int exit_code);

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_END_PROCESS_H_
