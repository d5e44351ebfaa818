// Pipeline times: what the devices spent their time on, over many steps: sums
// alone, so that adding a step costs next to nothing.

#ifndef TANDEM_PARALLEL_REPORT_PIPELINE_TIMES_H_
#define TANDEM_PARALLEL_REPORT_PIPELINE_TIMES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "parallel/pipeline/timeline.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulation.h"

namespace tandem {

// All in seconds, over all steps.
struct StageTimes {
  double forward = 0;
  double backward = 0;  // in one part
  double backward_input = 0;
  double backward_weight = 0;
  double microbatches = 0;  // forwards, in number
};

struct DeviceTimes {
  double steps = 0;    // in number
  double step = 0;     // from the process's first action to its last one's end
  double working = 0;  // from the device's first action to its last one's end
  double forward = 0;
  double backward = 0;  // in one part, or the input's
  double weights = 0;
  double input_wait = 0;
  double gradient_wait = 0;
  double copying = 0;
  double messages = 0;  // forwards and backwards, in number

  double busy() const { return forward + backward + weights; }
};

// Not thread-safe.
class PipelineTimes {
 public:
  // The first `skipped` steps are not counted: memory is still being found
  // then.
  explicit PipelineTimes(const Schedule& schedule, int skipped = 2);

  // Adds a step of this process's devices. Requires a timeline of the schedule.
  void Add(const PipelineTimeline& step);

  // Adds what another rank measured of its devices.
  void Add(const PipelineTimes& other);

  // All numbers in a row, for a collective: element-wise sums over ranks are
  // the whole pipeline's. InvalidArgument when they are not as many.
  std::vector<double> Flatten() const;
  absl::Status SetFlat(const std::vector<double>& values);

  const std::vector<StageTimes>& stages() const { return stages_; }
  const std::vector<DeviceTimes>& devices() const { return devices_; }

  // Means over steps: of the slowest rank's step, and of one stage's parts for
  // one microbatch. A backward in one part counts as two equal halves. 0
  // without steps.
  double StepSeconds() const;
  double MessageSeconds() const;  // handing over, on the devices that do
  std::vector<StageCost> StageCosts() const;
  int steps() const;

 private:
  std::vector<StageTimes> stages_;
  std::vector<DeviceTimes> devices_;
  int to_skip_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_REPORT_PIPELINE_TIMES_H_
