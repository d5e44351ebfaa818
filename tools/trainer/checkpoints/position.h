// Position of a training job: where it stands.

#ifndef TANDEM_TOOLS_TRAINER_CHECKPOINTS_POSITION_H_
#define TANDEM_TOOLS_TRAINER_CHECKPOINTS_POSITION_H_

#include <cstdint>

#include "datasets/distributed_sampler.h"

namespace tandem {

struct TrainPosition {
  int64_t step = 0;  // steps done
  SamplerState sampler;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_CHECKPOINTS_POSITION_H_
