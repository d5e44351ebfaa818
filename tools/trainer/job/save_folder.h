// Save folder: where a job's checkpoints go (core/checkpoint/folder/
// step_folders.h).

#ifndef TANDEM_TOOLS_TRAINER_JOB_SAVE_FOLDER_H_
#define TANDEM_TOOLS_TRAINER_JOB_SAVE_FOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "core/comm/communicator.h"

namespace tandem {

// Makes `folder` where it is missing, does in it what a checkpoint does (a
// folder beside, a file that is synced, a rename), and sees whether all ranks
// of `world` have the same folder, so that a job learns all that before it
// trains. FailedPrecondition, the same on all ranks. Nothing to do for an empty
// name. Collective.
absl::Status PrepareSaveFolder(const std::string& folder, Communicator& world);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_SAVE_FOLDER_H_
