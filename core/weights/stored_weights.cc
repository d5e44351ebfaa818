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
#include "core/base/status_macros.h"
#include "core/checkpoint/safetensors.h"
#include "core/files/file_target.h"
#include "core/files/regular_file.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// As much as one file's header may take, which says the same and more.
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
  if (!index.is_object()) return BadIndex(path, "it is no JSON object");
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

void AddTensors(const std::shared_ptr<SafetensorsReader>& reader,
                StoredTensors* tensors) {
  for (const SafetensorsEntry& entry : reader->entries()) {
    tensors->Add({{entry.name, entry.dtype, entry.shape},
                  [reader, &entry] { return reader->Read(entry); },
                  [reader, &entry] { return reader->Verify(entry); }});
  }
}

absl::Status AddFile(const std::string& path, const std::set<std::string>* has,
                     StoredWeights* weights) {
  TANDEM_ASSIGN_OR_RETURN(std::shared_ptr<SafetensorsReader> reader,
                          SafetensorsReader::Open(path));
  for (const SafetensorsEntry& entry : reader->entries()) {
    if (has == nullptr || has->count(entry.name) > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        path, " has a tensor ", entry.name, ", of which ", kWeightsIndexFile,
        " says that it is in another file, or nothing"));
  }
  if (has != nullptr) {
    for (const std::string& name : *has) {
      if (reader->Find(name) != nullptr) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(path, " lacks tensor ", name, ", which is there by ",
                       kWeightsIndexFile));
    }
  }
  if (weights->files.empty()) weights->metadata = reader->metadata();
  weights->files.push_back(path);
  AddTensors(reader, &weights->tensors);
  return absl::OkStatus();
}

absl::Status NoWeights(const std::string& folder) {
  const bool pickled = IsThere(folder + "/pytorch_model.bin") ||
                       IsThere(folder + "/pytorch_model.bin.index.json");
  return absl::NotFoundError(absl::StrCat(
      folder, " has neither ", kWeightsFile, " nor ", kWeightsIndexFile,
      pickled ? "; its pytorch_model.bin is Python's own (pickle), which is "
                "not read: load it with transformers and save_pretrained it, "
                "which writes safetensors"
              : ""));
}

}  // namespace

absl::StatusOr<StoredWeights> OpenWeights(const std::string& path) {
  StoredWeights weights;
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    TANDEM_RETURN_IF_ERROR(AddFile(path, nullptr, &weights));
    return weights;
  }
  const std::string whole = absl::StrCat(path, "/", kWeightsFile);
  if (IsThere(whole)) {
    TANDEM_RETURN_IF_ERROR(AddFile(whole, nullptr, &weights));
    return weights;
  }
  const std::string index = absl::StrCat(path, "/", kWeightsIndexFile);
  if (!IsThere(index)) return NoWeights(path);
  TANDEM_ASSIGN_OR_RETURN(const Shards shards, ReadIndex(index));
  for (const auto& [shard, names] : shards) {
    TANDEM_RETURN_IF_ERROR(
        AddFile(absl::StrCat(path, "/", shard), &names, &weights));
  }
  return weights;
}

}  // namespace tandem
