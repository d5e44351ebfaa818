// Save of a checkpoint's folder: every rank writes its shard, in parallel, and
// one of them makes the folder a checkpoint when all have.

#ifndef TANDEM_CORE_CHECKPOINT_FOLDER_SAVE_H_
#define TANDEM_CORE_CHECKPOINT_FOLDER_SAVE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/safetensors_header.h"

namespace tandem {

// An all-gather: every rank's text, by rank. It waits for all of them; its
// errors are its own.
using GatherTexts = std::function<absl::StatusOr<std::vector<std::string>>(
    const std::string& mine)>;

struct FolderSave {
  std::string path;  // of the checkpoint: "checkpoints/step-000000042"
  int rank = 0;
  GatherTexts gather;  // null: there is one rank
  // What rank 0 writes into the manifest (core/checkpoint/folder/manifest.h).
  std::map<std::string, int64_t> mesh;
  SafetensorsMetadata metadata;
  // Slices that are called otherwise than the tensor that they belong to, since
  // a rank has several of it: by name, the tensor's (joined_rows.h).
  std::map<std::string, std::string> tensor_of_slice = {};
};

// Rank 0 makes PATH.incomplete; each rank writes its shard there, synced, if it
// has any tensor; rank 0 puts the manifest together by the shards' headers,
// writes it, syncs the folder, and renames it to PATH (core/files/
// atomic_folder.h). No rank has more than its own part. Ranks must see one
// folder. Collective: four gathers. The result is the same on every rank:
// either PATH is there, whole and to stay, or it is as it was, and nothing of
// the save is left unless a process is killed.
//
// Fault points: those of SafetensorsWriter and AtomicFolder, and
// "checkpoint_manifest" between the shards and the manifest.
absl::Status SaveFolder(const FolderSave& save, const StatePart& part);

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_FOLDER_SAVE_H_
