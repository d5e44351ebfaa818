#include "core/checkpoint/folder/save.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/agreement/verdict.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/folder/manifest.h"
#include "core/checkpoint/folder/shard.h"
#include "core/files/atomic_file.h"
#include "core/files/atomic_folder.h"
#include "core/instrument/fault_point.h"

namespace tandem {
namespace {

// The ranks' texts, where all have succeeded so far.
absl::Status Agree(const FolderSave& save, const absl::Status& mine) {
  if (!save.gather) return mine;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          save.gather(EncodeStatus(mine)));
  return Verdict(all);
}

std::string ShardPath(const FolderSave& save, int rank) {
  return absl::StrCat(IncompleteFolder(save.path), "/", ShardName(rank));
}

absl::Status WriteOwn(const FolderSave& save, const StatePart& part) {
  if (part.tensors.empty()) return absl::OkStatus();
  return WriteShard(ShardPath(save, save.rank), part, save.tensor_of_slice);
}

absl::Status Finish(const FolderSave& save,
                    const std::vector<std::string>& shards,
                    AtomicFolder& folder) {
  TANDEM_RETURN_IF_ERROR(FaultPoint("checkpoint_manifest"));
  const std::string incomplete = IncompleteFolder(save.path);
  TANDEM_ASSIGN_OR_RETURN(Manifest manifest, CollectShards(incomplete, shards));
  manifest.mesh = save.mesh;
  manifest.metadata = save.metadata;
  TANDEM_RETURN_IF_ERROR(WriteFileAtomically(
      absl::StrCat(incomplete, "/", kManifestFile), FormatManifest(manifest)));
  return folder.Commit();
}

// Which ranks have written one, by what each has told.
std::vector<std::string> ShardsOf(const std::vector<std::string>& wrote) {
  std::vector<std::string> shards;
  for (size_t rank = 0; rank < wrote.size(); ++rank) {
    if (wrote[rank] == "1") shards.push_back(ShardName(static_cast<int>(rank)));
  }
  return shards;
}

}  // namespace

absl::Status SaveFolder(const FolderSave& save, const StatePart& part) {
  std::unique_ptr<AtomicFolder> folder;
  absl::Status status;
  if (save.rank == 0) {
    auto made = AtomicFolder::Create(save.path);
    status = made.status();
    if (made.ok()) folder = *std::move(made);
  }
  TANDEM_RETURN_IF_ERROR(Agree(save, status));
  TANDEM_RETURN_IF_ERROR(Agree(save, WriteOwn(save, part)));
  std::vector<std::string> wrote = {part.tensors.empty() ? "0" : "1"};
  if (save.gather) {
    TANDEM_ASSIGN_OR_RETURN(wrote, save.gather(wrote[0]));
  }
  if (save.rank == 0) status = Finish(save, ShardsOf(wrote), *folder);
  return Agree(save, status);
}

}  // namespace tandem
