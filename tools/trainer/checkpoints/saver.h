// Saver: a job's checkpoints, written at once or behind.

#ifndef TANDEM_TOOLS_TRAINER_CHECKPOINTS_SAVER_H_
#define TANDEM_TOOLS_TRAINER_CHECKPOINTS_SAVER_H_

#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/folder/host_copy.h"
#include "core/checkpoint/folder/save.h"
#include "core/comm/background_gather.h"
#include "tools/trainer/checkpoints/job_progress.h"
#include "tools/trainer/job/job.h"

namespace tandem {

struct SaveTimes {
  int64_t saves = 0;
  double stalled_ms = 0;  // that the loop stood still for them
};

// Writes a job's checkpoints, one a position at most. Every rank has one and
// calls the same methods. Not thread-safe.
class Saver {
 public:
  // `step`: that of the checkpoint that the job goes on from; -1: none. The job
  // must outlive it.
  Saver(const Job& job, int64_t step);
  // Waits for what is being written, which gives up where others are waited
  // for.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Writes DIR/step-000000042 (core/checkpoint/folder/save.h), DIR being
  // --save_dir, and removes what --keep_last and --keep_every do not keep;
  // nothing where --save_dir is empty. With --async_save it copies the state
  // and returns; a thread writes it while training goes on. One save is in
  // flight: the next one waits for it first, and returns its error. Collective.
  // An error leaves what was there before. Lines for a person, on rank 0.
  absl::StatusOr<std::vector<std::string>> Save(const TrainPosition& position);

  // Waits for the save in flight, and returns its error. Collective. Lines as
  // Save's.
  absl::StatusOr<std::vector<std::string>> Finish();

  // The last one that is complete; empty: none was written.
  const std::string& path() const { return path_; }
  // The step whose checkpoint is there, or being written, or failed.
  int64_t saved_step() const { return saved_step_; }
  const SaveTimes& times() const { return times_; }

 private:
  using Clock = std::chrono::steady_clock;

  FolderSave Describe(const TrainPosition& position, Communicator& group);
  absl::StatusOr<std::string> Write(const FolderSave& save,
                                    const StatePart& part) const;
  absl::Status WriteNow(const FolderSave& save, const StatePart& part);
  absl::Status WriteBehind(const FolderSave& save, const StatePart& part);

  const Job* job_;
  Communicator* group_;  // that saves; null: others do
  std::optional<BackgroundGather> gather_;
  HostCopy copy_;
  int64_t saved_step_;
  std::string path_;
  SaveTimes times_;
  // In flight.
  std::future<absl::StatusOr<std::string>> writing_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_CHECKPOINTS_SAVER_H_
