// Checkpoint folder: step-000000042.safetensors, ..., and latest.safetensors, a
// link to the newest.

#ifndef TANDEM_TOOLS_TRAINER_JOB_SAVE_FOLDER_H_
#define TANDEM_TOOLS_TRAINER_JOB_SAVE_FOLDER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace tandem {

// Makes `folder` where it is missing and sees whether files can be made in it,
// and whether latest.safetensors can be a link, so that a job learns that
// before it trains. Removes what killed jobs left of checkpoints that they were
// writing. Nothing to do for an empty name.
absl::Status PrepareSaveFolder(const std::string& folder);

// "step-000000042.safetensors".
std::string CheckpointName(int64_t step);

// Points FOLDER/latest.safetensors at `name`, in one step: a reader sees the
// old link or the new one.
absl::Status PointLatestAt(const std::string& folder, const std::string& name);

// Whether a job has saved something in `folder`; not in a folder without a name.
bool HasCheckpoint(const std::string& folder);

// The file that a user means by `path`: a folder's latest, or the path itself.
std::string CheckpointFile(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_SAVE_FOLDER_H_
