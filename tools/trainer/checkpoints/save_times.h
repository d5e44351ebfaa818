// Save times: what a job's checkpoints cost it.

#ifndef TANDEM_TOOLS_TRAINER_CHECKPOINTS_SAVE_TIMES_H_
#define TANDEM_TOOLS_TRAINER_CHECKPOINTS_SAVE_TIMES_H_

#include <cstdint>

namespace tandem {

struct SaveTimes {
  int64_t saves = 0;
  double stalled_ms = 0;  // that the loop stood still for them
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_CHECKPOINTS_SAVE_TIMES_H_
