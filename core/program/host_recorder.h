// Host recorder: c10d's flight recorder of the works of its host backends.

#ifndef TANDEM_CORE_PROGRAM_HOST_RECORDER_H_
#define TANDEM_CORE_PROGRAM_HOST_RECORDER_H_

namespace tandem {

// Turns it off, unless TORCH_FR_BUFFER_SIZE says how much it is to keep: it
// takes a stack trace of each work. That of NCCL's works, which reads the same
// variable, stays as it is. Call before works of c10d's.
void TurnOffHostRecorder();

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_HOST_RECORDER_H_
