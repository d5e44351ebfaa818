#include "tools/inspection.h"

#include <c10/util/accumulate.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/printable.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/fingerprint.h"
#include "core/checkpoint/folder/manifest.h"
#include "core/checkpoint/folder/step_folders.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/checkpoint/safetensors.h"
#include "core/pytorch_file/pytorch_file.h"

namespace tandem {
namespace {

bool IsWeight(const Inspection& inspection, const SafetensorsEntry& entry) {
  return !inspection.is_checkpoint || !IsOptimizerStateName(entry.name);
}

int64_t ValuesIn(const SafetensorsEntry& entry) {
  return c10::multiply_integers(entry.shape);
}

std::string ShapeText(const SafetensorsEntry& entry) {
  return absl::StrCat("[", absl::StrJoin(entry.shape, ", "), "]");
}

// In the file, by the names that are shown.
absl::StatusOr<std::string> HashWeights(const Inspection& inspection,
                                        SafetensorsReader& reader) {
  std::vector<TensorInfo> infos;
  for (const SafetensorsEntry& entry : inspection.tensors) {
    if (!IsWeight(inspection, entry)) continue;
    if (!entry.unread_dtype.empty()) {
      return absl::StrCat("none: ", entry.name, " is of dtype ",
                          entry.unread_dtype, ", which is not read");
    }
    infos.push_back({entry.name, entry.dtype, entry.shape});
  }
  WeightsHasher hasher;
  TANDEM_RETURN_IF_ERROR(hasher.Begin(infos));
  for (const TensorInfo& info : infos) {
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor tensor,
                            reader.Read(*reader.Find(info.name)));
    TANDEM_RETURN_IF_ERROR(hasher.Add(tensor));
  }
  return hasher.HexDigest();
}

std::string CompareChecksums(SafetensorsReader& reader) {
  if (!reader.has_checksums()) return "none";
  absl::Status status = reader.VerifyHeader();
  for (const SafetensorsEntry& entry : reader.entries()) {
    if (status.ok()) status = reader.Verify(entry);
  }
  return status.ok() ? "hold" : std::string(status.message());
}

// Weights first, by name, and how much there is.
void SortAndCount(Inspection* inspection) {
  std::sort(
      inspection->tensors.begin(), inspection->tensors.end(),
      [&](const SafetensorsEntry& a, const SafetensorsEntry& b) {
        return std::make_tuple(!IsWeight(*inspection, a), std::cref(a.name)) <
               std::make_tuple(!IsWeight(*inspection, b), std::cref(b.name));
      });
  for (const SafetensorsEntry& entry : inspection->tensors) {
    inspection->bytes += entry.bytes();
    if (!IsWeight(*inspection, entry)) continue;
    ++inspection->weight_tensors;
    inspection->weight_values += ValuesIn(entry);
  }
}

SafetensorsEntry ManifestEntry(const ManifestTensor& tensor) {
  const TensorInfo& info = tensor.info;
  const auto values = static_cast<uint64_t>(c10::multiply_integers(info.sizes));
  return {info.name, info.dtype, info.sizes, 0,
          values * c10::elementSize(info.dtype)};
}

absl::Status VerifyAll(const std::vector<const StoredTensors*>& kinds) {
  for (const StoredTensors* kind : kinds) {
    for (const StoredTensor& each : *kind) {
      TANDEM_RETURN_IF_ERROR(Verify(each));
    }
  }
  return absl::OkStatus();
}

// The hash of a folder's weights, whose manifest has them in the order of their
// names.
absl::StatusOr<std::string> HashWeights(const StoredTensors& model) {
  std::vector<TensorInfo> infos;
  for (const StoredTensor& each : model) infos.push_back(each.info);
  WeightsHasher hasher;
  TANDEM_RETURN_IF_ERROR(hasher.Begin(std::move(infos)));
  for (const StoredTensor& each : model) {
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor values, each.read());
    TANDEM_RETURN_IF_ERROR(hasher.Add(values));
  }
  return hasher.HexDigest();
}

absl::StatusOr<Inspection> InspectFolder(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(path));
  TANDEM_ASSIGN_OR_RETURN(const StoredCheckpoint checkpoint,
                          OpenCheckpointAt(path));
  Inspection inspection;
  inspection.path = path;
  inspection.is_checkpoint = true;
  inspection.metadata = manifest.metadata;
  for (const ManifestTensor& each : manifest.tensors) {
    inspection.tensors.push_back(ManifestEntry(each));
  }
  SortAndCount(&inspection);
  const absl::Status verified =
      VerifyAll({&checkpoint.model, &checkpoint.optimizer});
  inspection.checksums =
      verified.ok() ? "hold" : std::string(verified.message());
  inspection.weights_sha256 = "none: it is damaged";
  if (verified.ok()) {
    TANDEM_ASSIGN_OR_RETURN(inspection.weights_sha256,
                            HashWeights(checkpoint.model));
  }
  return inspection;
}

// What torch.save wrote, in the order of names.
absl::StatusOr<Inspection> InspectPyTorchFile(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const StoredTensors file, OpenPyTorchFile(path));
  std::map<std::string, StoredTensor> by_name;
  for (const StoredTensor& each : file) by_name.emplace(each.info.name, each);
  Inspection inspection;
  inspection.path = path;
  StoredTensors sorted;
  bool has_checksums = false;
  for (const auto& [name, each] : by_name) {
    const int64_t values = c10::multiply_integers(each.info.sizes);
    inspection.tensors.push_back(
        {name, each.info.dtype, each.info.sizes, 0,
         static_cast<uint64_t>(values) * c10::elementSize(each.info.dtype)});
    sorted.Add(each);
    has_checksums = has_checksums || each.verify != nullptr;
  }
  SortAndCount(&inspection);
  const absl::Status verified = VerifyAll({&sorted});
  inspection.checksums = !verified.ok()  ? std::string(verified.message())
                         : has_checksums ? "hold"
                                         : "none";
  inspection.weights_sha256 = "none: it is damaged";
  if (verified.ok()) {
    TANDEM_ASSIGN_OR_RETURN(inspection.weights_sha256, HashWeights(sorted));
  }
  return inspection;
}

}  // namespace

absl::StatusOr<Inspection> Inspect(const std::string& given) {
  TANDEM_ASSIGN_OR_RETURN(const std::string path, CheckpointAt(given));
  if (IsCheckpointFolder(path)) return InspectFolder(path);
  TANDEM_ASSIGN_OR_RETURN(const bool is_pytorch, IsPyTorchFile(path));
  if (is_pytorch) return InspectPyTorchFile(path);
  TANDEM_ASSIGN_OR_RETURN(
      auto reader,
      SafetensorsReader::Open(path, SafetensorsReader::Damage::kTold));
  Inspection inspection;
  inspection.path = path;
  inspection.metadata = reader->metadata();
  inspection.is_checkpoint = IsCheckpointMetadata(reader->metadata());
  inspection.tensors = reader->entries();
  SortAndCount(&inspection);
  inspection.checksums = CompareChecksums(*reader);
  TANDEM_ASSIGN_OR_RETURN(inspection.weights_sha256,
                          HashWeights(inspection, *reader));
  return inspection;
}

std::string InspectionTable(const Inspection& inspection) {
  size_t name_width = 4;
  size_t shape_width = 5;
  for (const SafetensorsEntry& entry : inspection.tensors) {
    name_width = std::max(name_width, Printable(entry.name).size());
    shape_width = std::max(shape_width, ShapeText(entry).size());
  }
  std::string table;
  const auto add = [&](absl::string_view name, absl::string_view dtype,
                       absl::string_view shape, absl::string_view bytes) {
    absl::StrAppendFormat(&table, "%-*s  %-7s  %-*s  %12s\n", name_width, name,
                          dtype, shape_width, shape, bytes);
  };
  add("name", "dtype", "shape", "bytes");
  for (const SafetensorsEntry& entry : inspection.tensors) {
    add(Printable(entry.name), entry.DtypeText(), ShapeText(entry),
        absl::StrCat(entry.bytes()));
  }
  absl::StrAppend(&table, "\n", Printable(inspection.path), ": ",
                  inspection.is_checkpoint ? "a checkpoint" : "tensors", "\n",
                  inspection.tensors.size(), " tensors, ", inspection.bytes,
                  " bytes; parameters and buffers: ", inspection.weight_tensors,
                  " tensors, ", inspection.weight_values, " values\n");
  for (const auto& [key, value] : inspection.metadata) {
    absl::StrAppend(&table, "  ", Printable(key), " = ", Printable(value),
                    "\n");
  }
  absl::StrAppend(&table, "checksums ", Printable(inspection.checksums), "\n",
                  "weights_sha256 ", Printable(inspection.weights_sha256),
                  "\n");
  return table;
}

std::string InspectionJson(const Inspection& inspection) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const SafetensorsEntry& entry : inspection.tensors) {
    tensors.push_back({{"name", entry.name},
                       {"dtype", entry.DtypeText()},
                       {"shape", entry.shape},
                       {"bytes", entry.bytes()}});
  }
  nlohmann::ordered_json json = {{"file", inspection.path},
                                 {"checkpoint", inspection.is_checkpoint},
                                 {"metadata", inspection.metadata},
                                 {"tensors", std::move(tensors)},
                                 {"weight_tensors", inspection.weight_tensors},
                                 {"weight_values", inspection.weight_values},
                                 {"bytes", inspection.bytes},
                                 {"weights_sha256", inspection.weights_sha256},
                                 {"checksums", inspection.checksums}};
  // A path need not be UTF-8, and a terminal obeys some characters that JSON
  // would have as they are.
  return json.dump(-1, ' ', /*ensure_ascii=*/true,
                   nlohmann::json::error_handler_t::replace);
}

}  // namespace tandem
