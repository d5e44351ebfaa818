// Save folder: where a job's checkpoints go (core/checkpoint/folder/
// step_folders.h), and the tokenizer of its texts beside them, so that they
// know what their tokens mean.

#ifndef TANDEM_TOOLS_TRAINER_JOB_SAVE_FOLDER_H_
#define TANDEM_TOOLS_TRAINER_JOB_SAVE_FOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "core/base/owned_fd.h"
#include "core/comm/communicator.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// What rank 0 has of it.
struct SaveFolder {
  OwnedFd lock;
  std::string made;  // its path, if it was not there; else empty
};

// Makes `folder` where it is missing, does in it what a checkpoint does (a
// folder beside, a file that is synced, a rename), and sees whether all ranks
// of `world` have the same folder, so that a job learns all that before it
// trains. An error is the same on all ranks: FailedPrecondition or NotFound for
// what the user can mend; ResourceExhausted of a full disk, and the like, are
// not. Nothing to do for an empty name. Collective.
//
// Rank 0 has the folder to itself from here on, by its lock; what `own` had
// before goes. So ranks that nobody told of each other, or a second start by
// mistake, do not mix their checkpoints.
absl::Status PrepareSaveFolder(const std::string& folder, Communicator& world,
                               SaveFolder* own);

// Removes a folder that was made for this job and is empty still: the job was
// refused.
void RemoveUnusedFolder(const SaveFolder& own);

// The path, or the nearest one above it that is there.
std::string NearestThere(const std::string& path);

// What of that can be told without making or changing anything: a path that is
// no folder, or lies where this user may not write; a folder that another job
// has. Errors as PrepareSaveFolder's.
absl::Status TrySaveFolder(const std::string& folder);

// Puts the tokenizer that lies beside the token files of --dataset=tokens, or
// else in --init_from, into DIR/tokenizer, DIR being --save_dir. Nothing where
// there is none, or no DIR. FailedPrecondition where DIR has another one: its
// checkpoints are of other tokens. The same on all ranks. Collective.
absl::Status KeepTokenizer(const TrainOptions& options, Communicator& world);

// The folder with the tokenizer of the job's texts: the one beside its token
// files, else --init_from's. Empty: nobody knows which one it is.
std::string JobTokenizer(const TrainOptions& options);

// KeepTokenizer's error, of this process, with nothing put anywhere.
absl::Status CheckKeptTokenizer(const TrainOptions& options);

// The folder with the tokenizer of the model that a user means by `path`: that
// folder itself, as Hugging Face's are; else the one kept for a folder of
// checkpoints, or for one of them. Empty: there is none.
std::string KeptTokenizer(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_SAVE_FOLDER_H_
