// Training set of a job: this replica's batches, and the learning rate of each.

#ifndef TANDEM_TOOLS_TRAINER_TRAINING_SET_H_
#define TANDEM_TOOLS_TRAINER_TRAINING_SET_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/batch.h"
#include "datasets/distributed_sampler.h"
#include "datasets/loader.h"
#include "parallel/optim/learning_rate.h"
#include "tools/trainer/job/job.h"

namespace tandem {

// Plan of the job as it was launched: the learning rate goes by that, whoever
// is there.
struct TrainingPlan {
  int64_t steps = 0;  // in all
  int64_t steps_per_epoch = 0;
  int64_t samples_per_epoch = 0;  // that are trained on
};

// Requires the job's options, data, mesh and batch size. InvalidArgument for a
// training set that makes no batch, and for rates that are none.
absl::StatusOr<TrainingPlan> PlanTraining(const Job& job);

// Not thread-safe.
class TrainingSet {
 public:
  // Requires the job's strategy.
  static absl::StatusOr<TrainingSet> Open(const Job& job);

  // Goes on from where a checkpoint stood.
  absl::Status Restore(const SamplerState& state);
  // The same, `done` steps being done, of a job whose replicas were not always
  // as many: what is left of its samples says how many steps it has in all.
  absl::Status TakeOver(const Job& job, const SamplerState& state,
                        int64_t done);

  // Begins `epoch`, or goes on in it where the sampler stands in the midst of
  // it. Gives its steps that are left, if `done` of the job's are done.
  int64_t StartEpoch(int64_t epoch, int64_t done);

  // The next one of StartEpoch's steps; with --uneven_inputs=join without
  // samples where others alone have some left.
  absl::StatusOr<Batch> Next();

  // Behind the last batch; the same on all ranks.
  SamplerState state() const;

  int64_t steps_in_all() const { return steps_in_all_; }
  // Steps of the epoch that are to be taken yet.
  int64_t steps_left() const { return left_; }
  // The rate of the step behind `done` others.
  double LearningRate(int64_t done) const {
    return LearningRateAt(learning_rate_, done);
  }
  // Samples of the batch behind `before`, on all replicas, in `epoch`; those
  // that padding repeats count once.
  int64_t StepSampleCount(const SamplerState& before, int64_t epoch) const;
  // The samples of the job up to the last batch, counted so; epochs before this
  // one count as if they had been of this training set.
  int64_t SamplesSoFar() const;

 private:
  TrainingSet() = default;

  std::shared_ptr<DistributedSampler> sampler_;
  std::unique_ptr<Loader> loader_;
  LearningRateOptions learning_rate_;
  SamplerState begin_;  // where this run began
  bool joins_ = false;  // --uneven_inputs=join
  // The epoch, or what was left of it: where it began, the steps of the
  // replica that has the most, and those that were taken.
  SamplerState start_;
  int64_t steps_ = 0;
  int64_t taken_ = 0;
  int64_t left_ = 0;  // of StartEpoch's
  int64_t samples_ = 0;
  int64_t samples_per_epoch_ = 0;
  int64_t batch_size_ = 0;  // of all replicas
  int64_t steps_in_all_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_TRAINING_SET_H_
