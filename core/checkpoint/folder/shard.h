// Shard of a checkpoint: the safetensors file that one rank writes.
//
// What the rank has whole stands there as in any file of weights; a slice of a
// tensor that ranks share is [length], and the file's metadata says for it,
// under "tandem.slice.NAME", "BEGIN;SIZES;STRIDES" (core/checkpoint/folder/
// state_part.h), as in "6;2,3;3,1", and behind it ";TENSOR" where the slice is
// not called as the tensor that it belongs to.

#ifndef TANDEM_CORE_CHECKPOINT_FOLDER_SHARD_H_
#define TANDEM_CORE_CHECKPOINT_FOLDER_SHARD_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/folder/manifest.h"
#include "core/checkpoint/folder/state_part.h"

namespace tandem {

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

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_FOLDER_SHARD_H_
