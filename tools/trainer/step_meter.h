// Step meter: times and scores of training steps, between two reports and in
// all; and how often the host waits for its devices in them.

#ifndef TANDEM_TOOLS_TRAINER_STEP_METER_H_
#define TANDEM_TOOLS_TRAINER_STEP_METER_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/model/batch.h"
#include "core/sim/streams/streams.h"

namespace tandem {

// Times the steps of a job, and sums their scores between two reports. Not
// thread-safe.
class StepMeter {
 public:
  using Duration = std::chrono::duration<double>;

  using Losses = std::map<std::string, double>;

  // One step of `samples` samples, over all replicas, took `time` (from one
  // step's end to the next: waiting for the batch included). `added` are its
  // further losses (Strategy::AuxiliaryLosses), `sums` Strategy::NamedSums.
  void Add(const Score& score, int64_t samples, Duration time,
           const Losses& added = {}, const Losses& sums = {});

  // What came since the last Reset.
  const Score& score() const { return window_score_; }
  // Means over the samples of the steps that had them.
  Losses auxiliary_losses() const;
  const Losses& sums() const { return window_sums_; }
  double samples_per_s() const;
  double step_ms() const;
  int64_t steps_since_reset() const { return window_steps_; }
  void Reset();

  // What came in all. 0 before the first step.
  double total_samples_per_s() const;
  double mean_step_ms() const;
  double median_step_ms() const;

 private:
  Score window_score_;
  struct Sum {
    double loss = 0;
    int64_t samples = 0;
  };
  std::map<std::string, Sum> window_losses_;
  Losses window_sums_;
  int64_t window_steps_ = 0;
  int64_t window_samples_ = 0;
  double window_s_ = 0;
  int64_t total_samples_ = 0;
  double total_s_ = 0;
  std::vector<float> step_ms_;
};

// Counts how often the host waits for asynchronous simulated devices within
// this process's training steps. Not thread-safe.
class HostWaitMeter {
 public:
  void BeginStep();
  // When the step has been submitted.
  void EndStep();

  int64_t steps() const { return steps_; }
  // By what they were for, a step; but for the first steps, in which there is
  // more to wait for (buckets are put in order). Empty: there were none.
  std::map<std::string, double> waits() const;

 private:
  int64_t begun_ = 0;
  int64_t steps_ = 0;
  sim::HostWaits before_;
  sim::HostWaits all_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_STEP_METER_H_
