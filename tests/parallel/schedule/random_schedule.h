// For tests: schedules of anybody's own, drawn at random.

#ifndef TANDEM_TESTS_PARALLEL_SCHEDULE_RANDOM_SCHEDULE_H_
#define TANDEM_TESTS_PARALLEL_SCHEDULE_RANDOM_SCHEDULE_H_

#include <random>

#include "parallel/schedule/schedule.h"

namespace tandem {

struct RandomShape {
  int devices = 2;
  int most_stages = 4;  // of a device, 1 at least
  int microbatches = 4;
};

// Any schedule of that shape that ends can come of it: each device has some
// stages, anywhere in the model and listed in any order; of all actions that
// could be next one is taken, until all are done. Backward is whole, in two
// parts, or either for each microbatch of each stage.
Schedule RandomSchedule(const RandomShape& shape, std::mt19937& random);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_SCHEDULE_RANDOM_SCHEDULE_H_
