#include "core/weights/stored_weights.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/json_error.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/read_slice.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/tensor_slice.h"
#include "core/files/file_target.h"
#include "core/files/regular_file.h"
#include "core/pytorch_file/pytorch_file.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// In the order in which they are looked for: one file, or shards.
constexpr std::pair<const char*, const char*> kKinds[] = {
    {kWeightsFile, kWeightsIndexFile},
    {kPyTorchWeightsFile, kPyTorchIndexFile}};

// An index may take as much as one file's header, which says the same and more.
constexpr uint64_t kMaxIndexBytes = kMaxSafetensorsHeaderBytes;

// Names of tensors by the shard that has them.
using Shards = std::map<std::string, std::set<std::string>>;

absl::Status BadIndex(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, " is not a usable index of shards: ", why));
}

bool IsThere(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

absl::StatusOr<Shards> ReadIndex(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text,
                          ReadShortFile(path, kMaxIndexBytes));
  const Json index = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!index.is_object()) {
    return BadIndex(path,
                    absl::StrCat("it is no JSON object", JsonError(text)));
  }
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) {
    return BadIndex(path, "it has no object \"weight_map\"");
  }
  Shards shards;
  for (const auto& [name, shard] : map->items()) {
    if (!shard.is_string() || !IsFileName(shard.get<std::string>())) {
      return BadIndex(
          path, absl::StrCat("tensor ", name, " is to be in ",
                             shard.dump(-1, ' ', /*ensure_ascii=*/true,
                                        Json::error_handler_t::replace),
                             ", expected the name of a file in the folder"));
    }
    shards[shard.get<std::string>()].insert(name);
  }
  if (shards.empty()) return BadIndex(path, "its weight_map is empty");
  return shards;
}

struct OpenFile {
  StoredTensors tensors;
  SafetensorsMetadata metadata;
};

absl::StatusOr<OpenFile> OpenSafetensors(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(std::shared_ptr<SafetensorsReader> reader,
                          SafetensorsReader::Open(path));
  OpenFile file;
  file.metadata = reader->metadata();
  for (const SafetensorsEntry& entry : reader->entries()) {
    file.tensors.Add(
        {{entry.name, entry.dtype, entry.shape},
         [reader, &entry] { return reader->Read(entry); },
         [reader, &entry] { return reader->Verify(entry); },
         /*read_into=*/nullptr,
         [reader, &entry](const TensorShard& shard, const at::Tensor& target) {
           return ReadSlice(*reader, entry,
                            SliceOfShard(entry.shape, WholeShard(entry.shape)),
                            shard, target);
         }});
  }
  return file;
}

absl::StatusOr<OpenFile> OpenOne(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const bool is_pytorch, IsPyTorchFile(path));
  if (!is_pytorch) return OpenSafetensors(path);
  OpenFile file;
  TANDEM_ASSIGN_OR_RETURN(file.tensors, OpenPyTorchFile(path));
  return file;
}

// `expected`: by the index.
absl::Status CheckNames(const std::string& path, const StoredTensors& tensors,
                        const std::set<std::string>& expected) {
  std::set<std::string> lacking = expected;
  for (const StoredTensor& each : tensors) {
    if (lacking.erase(each.info.name) > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        path, " has a tensor ", each.info.name,
        ", of which the folder's index says that it is in another file, or "
        "nothing"));
  }
  if (lacking.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, " lacks tensor ", *lacking.begin(),
                   ", which is there by the folder's index"));
}

absl::Status AddFile(const std::string& path, const std::set<std::string>* has,
                     StoredWeights* weights) {
  TANDEM_ASSIGN_OR_RETURN(OpenFile file, OpenOne(path));
  if (has != nullptr) {
    TANDEM_RETURN_IF_ERROR(CheckNames(path, file.tensors, *has));
  }
  if (weights->files.empty()) weights->metadata = std::move(file.metadata);
  weights->files.push_back(path);
  for (const StoredTensor& each : file.tensors) weights->tensors.Add(each);
  return absl::OkStatus();
}

absl::Status AddShards(const std::string& folder, const std::string& index,
                       StoredWeights* weights) {
  TANDEM_ASSIGN_OR_RETURN(const Shards shards, ReadIndex(index));
  for (const auto& [shard, names] : shards) {
    TANDEM_RETURN_IF_ERROR(
        AddFile(absl::StrCat(folder, "/", shard), &names, weights));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StoredWeights> OpenWeights(const std::string& path) {
  StoredWeights weights;
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    TANDEM_RETURN_IF_ERROR(AddFile(path, nullptr, &weights));
    return weights;
  }
  for (const auto& [whole, index] : kKinds) {
    const std::string file = absl::StrCat(path, "/", whole);
    const std::string index_file = absl::StrCat(path, "/", index);
    if (!IsThere(file) && !IsThere(index_file)) continue;
    TANDEM_RETURN_IF_ERROR(IsThere(file)
                               ? AddFile(file, nullptr, &weights)
                               : AddShards(path, index_file, &weights));
    return weights;
  }
  return absl::NotFoundError(absl::StrCat(
      path, " has neither ", kWeightsFile, " nor ", kPyTorchWeightsFile,
      ", nor an index of shards (", kWeightsIndexFile, ")"));
}

}  // namespace tandem
