// Checkpoints of a job, a folder a step: step-000000042, step-000000084, ...
// Which is the newest, which are kept, what killed jobs left.

#ifndef TANDEM_CORE_CHECKPOINT_FOLDER_STEP_FOLDERS_H_
#define TANDEM_CORE_CHECKPOINT_FOLDER_STEP_FOLDERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// "step-000000042".
std::string StepFolderName(int64_t step);

// What is made in such a folder to try it.
inline constexpr char kProbeName[] = ".probe";

struct StepFolder {
  int64_t step = 0;
  // The number among the folders of one step: 0 for step-000000042, 1 for
  // step-000000042.1, which was written when that was there, ...
  int copy = 0;
  std::string path;
};

// What is called so in `folder`, whatever it is, the newest (of the highest
// step, and of it the last copy) first.
std::vector<StepFolder> StepFolders(const std::string& folder);

// The folders that are checkpoints: they have a manifest, which is written
// last. A folder that is being written, or was when its job was killed, has
// another name.
std::vector<StepFolder> CompleteCheckpoints(const std::string& folder);

// The checkpoint that a user means by `path`: itself, or the newest of a folder
// of checkpoints. NotFound for a folder without any, saying what is there.
absl::StatusOr<std::string> CheckpointAt(const std::string& path);

// The folder with a manifest that a user means by `path` (CheckpointAt);
// nothing where that is something else.
std::optional<std::string> CheckpointFolderAt(const std::string& path);

struct Retention {
  int64_t keep_last = 0;   // so many of the newest; 0: all
  int64_t keep_every = 0;  // and those of steps that it divides; 0: no others
};

// The complete checkpoints of `all`, the newest first, that are not to be kept;
// never that at `newest`, which was written last.
std::vector<StepFolder> ToBeRemoved(const std::vector<StepFolder>& all,
                                    const Retention& retention,
                                    const std::string& newest);

// The link, in a folder of checkpoints, to the best one.
inline constexpr char kBestLink[] = "best";

// Has it lead to `checkpoint`, which lies in `folder`, instead of where it led
// before. FailedPrecondition where something else is called so; the errors of
// the file system.
absl::Status LinkBest(const std::string& folder, const std::string& checkpoint);

// Removes those, but for the one that kBestLink leads to, the oldest first. A
// folder whose manifest cannot be read is no checkpoint to go on from: it stays
// for a person to look at, and none that is one goes because of it.
absl::Status RemoveOld(const std::string& folder, const Retention& retention,
                       const std::string& newest);

// Removes what killed jobs, and earlier processes of `job`, left in `folder` of
// checkpoints that they were writing or removing (RemoveAbandonedFolders), and
// of probes; their names.
std::vector<std::string> RemoveIncompleteCheckpoints(
    const std::string& folder, const std::string& job = "");

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_FOLDER_STEP_FOLDERS_H_
