// Save folder: where a job's checkpoints go (core/checkpoint/folder/
// step_folders.h).

#ifndef TANDEM_TOOLS_TRAINER_JOB_SAVE_FOLDER_H_
#define TANDEM_TOOLS_TRAINER_JOB_SAVE_FOLDER_H_

#include <string>

#include "absl/status/status.h"

namespace tandem {

// Makes `folder` where it is missing and sees whether files can be made in it,
// so that a job learns that before it trains. Nothing to do for an empty name.
absl::Status PrepareSaveFolder(const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_SAVE_FOLDER_H_
