// Save folder: where a job's checkpoints go (core/checkpoint/folder/
// step_folders.h).

#ifndef TANDEM_TOOLS_TRAINER_JOB_SAVE_FOLDER_H_
#define TANDEM_TOOLS_TRAINER_JOB_SAVE_FOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "core/base/owned_fd.h"
#include "core/comm/communicator.h"

namespace tandem {

// Makes `folder` where it is missing, does in it what a checkpoint does (a
// folder beside, a file that is synced, a rename), and sees whether all ranks
// of `world` have the same folder, so that a job learns all that before it
// trains. An error is the same on all ranks: FailedPrecondition or NotFound for
// what the user can mend; ResourceExhausted of a full disk, and the like, are
// not. Nothing to do for an empty name. Collective.
//
// Rank 0 has the folder to itself from here on, by `lock`; what is in it before
// goes. So ranks that nobody told of each other, or a second start by mistake,
// do not mix their checkpoints.
absl::Status PrepareSaveFolder(const std::string& folder, Communicator& world,
                               OwnedFd* lock);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_SAVE_FOLDER_H_
