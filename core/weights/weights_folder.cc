#include "core/weights/weights_folder.h"

#include <ATen/Tensor.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/dtype_names.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/safetensors.h"
#include "core/files/atomic_file.h"
#include "core/finite/finite_check.h"
#include "core/weights/stored_weights.h"

namespace tandem {
namespace {

// A tensor and what it is to be written as.
struct Written {
  const StoredTensor* source;
  TensorInfo info;
};
using Shard = std::vector<Written>;

uint64_t ValueBytes(const TensorInfo& info) {
  uint64_t bytes = c10::elementSize(info.dtype);
  for (const int64_t size : info.sizes) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

Written WrittenAs(const StoredTensor& tensor,
                  const std::optional<c10::ScalarType>& dtype) {
  Written written = {&tensor, tensor.info};
  if (dtype.has_value() && c10::isFloatingType(tensor.info.dtype)) {
    written.info.dtype = *dtype;
  }
  return written;
}

std::vector<Shard> Cut(const StoredTensors& tensors,
                       const WeightsFolderOptions& options) {
  std::vector<Shard> shards(1);
  uint64_t bytes = 0;
  for (const StoredTensor& each : tensors) {
    Written written = WrittenAs(each, options.dtype);
    const uint64_t more = ValueBytes(written.info);
    if (!shards.back().empty() && bytes + more > options.max_shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += more;
    shards.back().push_back(std::move(written));
  }
  return shards;
}

// Can it be asked for values that are not finite? (Types of one byte are only
// written as they are stored.)
bool CanBeAsked(c10::ScalarType dtype) {
  return c10::isFloatingType(dtype) && c10::elementSize(dtype) > 1;
}

// An error where the dtype of its file makes a tensor infinite that is not
// stored so.
absl::Status CheckHeld(const at::Tensor& stored, const at::Tensor& values) {
  const at::Tensor before = stored.to(at::kDouble);
  const at::Tensor lost =
      at::isfinite(before).logical_and(at::isfinite(values).logical_not());
  const auto count = lost.sum().item<int64_t>();
  if (count == 0) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat(count, " of ", values.numel(), " values are too large for ",
                   DtypeName(values.scalar_type()), ", such as ",
                   before.masked_select(lost)[0].item<double>(),
                   values.scalar_type() == at::kHalf
                       ? ": take a dtype of a wider range, as bfloat16 has"
                       : ""));
}

// In the dtype of its file.
absl::StatusOr<at::Tensor> Convert(const at::Tensor& stored,
                                   const TensorInfo& info,
                                   NonfiniteTensors* nonfinite) {
  at::Tensor values = stored.to(info.dtype);
  if (!CanBeAsked(info.dtype) || IsFinite(values)) return values;
  TANDEM_RETURN_IF_ERROR(CheckHeld(stored, values));
  nonfinite->push_back(
      absl::StrCat(info.name, " has ", CountNonfinite(values)));
  return values;
}

absl::Status WriteShard(const std::string& path, Shard shard,
                        NonfiniteTensors* nonfinite) {
  SafetensorsWriter writer(path, {{"format", "pt"}});
  std::sort(shard.begin(), shard.end(), [&](const auto& a, const auto& b) {
    return writer.ComesBefore(a.info, b.info);
  });
  std::vector<TensorInfo> infos;
  for (const Written& each : shard) infos.push_back(each.info);
  TANDEM_RETURN_IF_ERROR(writer.Begin(std::move(infos)));
  for (const Written& each : shard) {
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor stored, each.source->read());
    TANDEM_ASSIGN_OR_RETURN(
        const at::Tensor values,
        CatchTorchOr([&] { return Convert(stored, each.info, nonfinite); },
                     each.info.name));
    TANDEM_RETURN_IF_ERROR(writer.Add(values));
  }
  return writer.Commit();
}

std::string ShardName(size_t i, size_t shards) {
  return shards == 1
             ? std::string(kWeightsFile)
             : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, shards);
}

std::string WeightsIndex(const std::vector<Shard>& shards) {
  nlohmann::json map = nlohmann::json::object();
  uint64_t bytes = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const Written& each : shards[i]) {
      map[each.info.name] = ShardName(i, shards.size());
      bytes += ValueBytes(each.info);
    }
  }
  const nlohmann::json index = {{"metadata", {{"total_size", bytes}}},
                                {"weight_map", std::move(map)}};
  return index.dump(2) + "\n";
}

bool IsWeightsName(const std::string& name) {
  return name == kWeightsIndexFile || name == kWeightsFile ||
         (absl::StartsWith(name, "model-") &&
          absl::EndsWith(name, ".safetensors"));
}

absl::Status Prepare(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot make ", folder, ": ", error.message()));
  }
  if (!HasWeights(folder)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      folder, " has weights already: remove them, or give another folder"));
}

}  // namespace

absl::StatusOr<NonfiniteTensors> WriteWeightsFile(
    const std::string& path, const StoredTensors& tensors,
    std::optional<c10::ScalarType> dtype) {
  Shard all;
  for (const StoredTensor& each : tensors) {
    all.push_back(WrittenAs(each, dtype));
  }
  NonfiniteTensors nonfinite;
  TANDEM_RETURN_IF_ERROR(WriteShard(path, std::move(all), &nonfinite));
  return nonfinite;
}

bool HasWeights(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (IsWeightsName(entry.path().filename().string())) return true;
  }
  return false;
}

absl::StatusOr<NonfiniteTensors> WriteWeightsFolder(
    const std::string& folder, const StoredTensors& tensors,
    const WeightsFolderOptions& options) {
  TANDEM_RETURN_IF_ERROR(Prepare(folder));
  NonfiniteTensors nonfinite;
  const std::vector<Shard> shards = Cut(tensors, options);
  std::vector<std::string> written;
  // Some of a model's shards are no weights: they would be in the way of those
  // that are written next.
  absl::Cleanup remove = [&written] {
    std::error_code ignored;
    for (const std::string& path : written) {
      std::filesystem::remove(path, ignored);
    }
  };
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string path =
        absl::StrCat(folder, "/", ShardName(i, shards.size()));
    TANDEM_RETURN_IF_ERROR(WriteShard(path, shards[i], &nonfinite));
    written.push_back(path);
  }
  if (shards.size() > 1) {
    TANDEM_RETURN_IF_ERROR(WriteFileAtomically(
        absl::StrCat(folder, "/", kWeightsIndexFile), WeightsIndex(shards)));
  }
  std::move(remove).Cancel();
  return nonfinite;
}

}  // namespace tandem
