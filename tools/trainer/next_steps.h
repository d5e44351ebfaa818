// Next steps: what a user may try when a job has come to its end.

#ifndef TANDEM_TOOLS_TRAINER_NEXT_STEPS_H_
#define TANDEM_TOOLS_TRAINER_NEXT_STEPS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/trainer/settings/options.h"

namespace tandem {

// What the options do not say.
struct EndedJob {
  int ranks = 1;
  bool tokens = false;               // of which samples are made
  std::vector<int64_t> input_shape;  // a sample's
  std::string checkpoint;            // the last one; empty: there is none
};

// (what it is, how it is asked for, beside the job's own flags): of what this
// job can go on with. Each line is there to be typed as it stands, even when
// the one before it was: what is another job saves in a folder of its own.
std::vector<std::pair<std::string, std::string>> NextSteps(
    const TrainOptions& options, const EndedJob& job);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_NEXT_STEPS_H_
