#include "core/checkpoint/folder/save.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/agreement/agreement.h"
#include "core/base/status_macros.h"
#include "core/base/text_fields.h"
#include "core/checkpoint/folder/manifest.h"
#include "core/checkpoint/folder/shard.h"
#include "core/files/atomic_file.h"
#include "core/files/atomic_folder.h"
#include "core/instrument/fault_point.h"

namespace tandem {
namespace {

// Each rank's text, by rank, where all of them have one.
absl::StatusOr<std::vector<std::string>> Gather(
    const FolderSave& save, const absl::StatusOr<std::string>& mine) {
  if (!save.gather) {
    TANDEM_RETURN_IF_ERROR(mine.status());
    return std::vector<std::string>{*mine};
  }
  std::string told;
  AppendField(EncodeStatus(mine.status()), &told);
  AppendField(mine.value_or(""), &told);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          save.gather(told));
  std::vector<std::string> statuses;
  std::vector<std::string> texts;
  for (absl::string_view rest : all) {
    statuses.emplace_back(TakeField(&rest).value_or(""));
    texts.emplace_back(TakeField(&rest).value_or(""));
  }
  TANDEM_RETURN_IF_ERROR(Verdict(statuses));
  return texts;
}

// Whether this rank has written one: "1" or "".
absl::StatusOr<std::string> WriteOwn(const FolderSave& save,
                                     const std::string& folder,
                                     const StatePart& part) {
  if (part.tensors.empty()) return "";
  TANDEM_RETURN_IF_ERROR(
      WriteShard(absl::StrCat(folder, "/", ShardName(save.rank)), part,
                 save.tensor_of_slice, save.may_be_infinite));
  return "1";
}

absl::StatusOr<std::string> Finish(const FolderSave& save,
                                   const std::vector<std::string>& wrote,
                                   AtomicFolder& folder) {
  TANDEM_RETURN_IF_ERROR(FaultPoint("checkpoint_manifest"));
  std::vector<std::string> shards;
  for (size_t rank = 0; rank < wrote.size(); ++rank) {
    if (!wrote[rank].empty())
      shards.push_back(ShardName(static_cast<int>(rank)));
  }
  TANDEM_ASSIGN_OR_RETURN(Manifest manifest,
                          CollectShards(folder.temporary(), shards));
  manifest.mesh = save.mesh;
  manifest.metadata = save.metadata;
  TANDEM_RETURN_IF_ERROR(
      WriteFileAtomically(absl::StrCat(folder.temporary(), "/", kManifestFile),
                          FormatManifest(manifest)));
  TANDEM_RETURN_IF_ERROR(FaultPoint("folder_rename"));
  TANDEM_ASSIGN_OR_RETURN(std::string path, folder.Commit());
  TANDEM_RETURN_IF_ERROR(FaultPoint("folder_renamed"));
  return path;
}

}  // namespace

absl::StatusOr<std::string> SaveFolder(const FolderSave& save,
                                       const StatePart& part) {
  std::unique_ptr<AtomicFolder> folder;
  absl::StatusOr<std::string> mine = "";
  if (save.rank == 0) {
    auto made = AtomicFolder::Create(save.path, save.job);
    if (made.ok()) {
      folder = *std::move(made);
      mine = folder->temporary();
    } else {
      mine = made.status();
    }
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> temporary,
                          Gather(save, mine));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> wrote,
                          Gather(save, WriteOwn(save, temporary[0], part)));
  mine = "";
  if (save.rank == 0) mine = Finish(save, wrote, *folder);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> path,
                          Gather(save, mine));
  return path[0];
}

}  // namespace tandem
