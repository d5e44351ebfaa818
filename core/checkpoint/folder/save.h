// Save of a checkpoint's folder: every rank writes its shard, in parallel, and
// one of them makes the folder a checkpoint when all have.

#ifndef TANDEM_CORE_CHECKPOINT_FOLDER_SAVE_H_
#define TANDEM_CORE_CHECKPOINT_FOLDER_SAVE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/folder/manifest.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/row_parts.h"
#include "core/checkpoint/safetensors_header.h"

namespace tandem {

// Joined rows: what a rank writes of weights that its model has in parts, as
// slices of these weights.

struct JoinedState {
  StatePart part;
  std::map<std::string, std::string> tensor_of_slice;  // FolderSave's
};

// Copies nothing: tensors alias those of `part`, which are contiguous where
// they are a weight's parts.
JoinedState JoinRows(const StatePart& part, const RowParts& parts);

// Shard of a checkpoint: the safetensors file that one rank writes.
//
// What the rank has whole stands there as in any file of weights; for a slice
// (core/checkpoint/tensor_slice.h) the file's metadata says, under
// "tandem.slice.NAME", "BEGIN;SIZES;STRIDES", as in "6;2,3;3,1", and behind it
// ";TENSOR" where the slice is not called as the tensor that it belongs to; and
// where it is of a shard, under "tandem.shard.NAME", that shard
// (FormatShard), as in "0+2;0+1,2+1".

// "rank-00003.safetensors".
std::string ShardName(int rank);

// Writes `part` to the file at `path`, synced; no second copy of it is held.
// `tensor_of_slice` and `may_be_infinite`: FolderSave's.
// Errors and fault points are SafetensorsWriter's.
absl::Status WriteShard(
    const std::string& path, const StatePart& part,
    const std::map<std::string, std::string>& tensor_of_slice = {},
    const std::set<std::string>& may_be_infinite = {});

// Puts together what shards of `folder` hold, by their headers alone: the files
// and tensors of a manifest, tensors in the order of their names. NotFound for
// a shard that is not there: ranks see different folders. InvalidArgument,
// naming the tensor, unless the shards' pieces make up whole tensors.
absl::StatusOr<Manifest> CollectShards(const std::string& folder,
                                       const std::vector<std::string>& shards);

// An all-gather: every rank's text, by rank. It waits for all of them; its
// errors are its own.
using GatherTexts = std::function<absl::StatusOr<std::vector<std::string>>(
    const std::string& mine)>;

struct FolderSave {
  std::string path;  // of the checkpoint: "checkpoints/step-000000042"
  int rank = 0;
  std::string job = {};  // its owner (AtomicFolder::Create)
  GatherTexts gather;    // null: there is one rank
  // What rank 0 writes into the manifest (core/checkpoint/folder/manifest.h).
  std::map<std::string, int64_t> mesh;
  SafetensorsMetadata metadata;
  // Slices that are called otherwise than the tensor that they belong to, since
  // a rank has several of it: by name, the tensor's (JoinRows).
  std::map<std::string, std::string> tensor_of_slice = {};
  // Tensors of this rank's part that may have infinite and NaN values: buffers
  // (a mask, say), and what is not trained. In all others such a value has
  // broken the training, and nothing is saved: OutOfRange, naming it.
  std::set<std::string> may_be_infinite = {};
};

// Rank 0 makes a temporary folder; each rank writes its shard there, synced, if
// it has any tensor; rank 0 puts the manifest together by the shards' headers,
// writes it, syncs the folder, and renames it to PATH, or to PATH.1, PATH.2,
// ... where that is taken (core/files/atomic_folder.h). No rank has more than
// its own part. Ranks must see one folder. Collective: three gathers. The
// result is the same on every rank: either the path of the checkpoint, which is
// whole and to stay, or an error, and nothing of the save is left unless a
// process is killed.
//
// Fault points: those of SafetensorsWriter; "checkpoint_manifest" between the
// shards and the manifest; "folder_rename" and "folder_renamed" before the
// folder has its name, and after that.
absl::StatusOr<std::string> SaveFolder(const FolderSave& save,
                                       const StatePart& part);

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_FOLDER_SAVE_H_
