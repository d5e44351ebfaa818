#include "tools/trainer/job_partition.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/byte_size.h"
#include "core/layer_list.h"
#include "core/status_macros.h"
#include "models/classification_loss.h"
#include "parallel/copy_cost.h"
#include "parallel/layer_profile.h"
#include "parallel/model_parallel.h"
#include "parallel/partition.h"
#include "parallel/partition_table.h"
#include "tools/trainer/pipeline_settings.h"

namespace tandem {
namespace {

// The first samples: as large as the largest microbatch.
absl::StatusOr<Batch> Sample(const Dataset& data, int64_t batch_size,
                             int64_t microbatches) {
  const int64_t size = (batch_size + microbatches - 1) / microbatches;
  std::vector<int64_t> indices(
      static_cast<size_t>(std::min(size, data.size())));
  std::iota(indices.begin(), indices.end(), 0);
  return data.Get(indices);
}

ModelOutline OutlineOf(const LayerSpecs& specs, const LayerList& layers) {
  ModelOutline outline;
  for (const LayerSpec& each : specs) {
    outline.names.push_back(each.name);
    outline.types.push_back(each.type);
  }
  outline.parameters = ParameterCounts(layers);
  return outline;
}

absl::StatusOr<PipelineDevices> DescribeDevices(
    const TrainOptions& options, const std::vector<c10::Device>& devices) {
  PipelineDevices described;
  TANDEM_ASSIGN_OR_RETURN(described.sending,
                          MeasureCopy(devices.front(), devices.back()));
  if (!options.devices.device_memory.empty()) {
    TANDEM_ASSIGN_OR_RETURN(described.device_bytes,
                            ParseByteSize(options.devices.device_memory));
  }
  return described;
}

absl::StatusOr<JobPartition> Partition(const TrainOptions& options,
                                       const LayerSpecs& specs,
                                       const Schedule& schedule,
                                       const std::vector<c10::Device>& devices,
                                       const Dataset& data) {
  const std::string flag = BalanceFor(options.pipeline, options.devices.cut);
  TANDEM_ASSIGN_OR_RETURN(const BalanceRule rule, ParseBalance(flag));
  const LayerList layers = MakeLayers(specs, options.seed);
  ModelOutline outline = OutlineOf(specs, layers);
  PipelineDevices described;
  if (rule.kind == BalanceKind::kProfile) {
    TANDEM_ASSIGN_OR_RETURN(described, DescribeDevices(options, devices));
    TANDEM_ASSIGN_OR_RETURN(const Batch sample, Sample(data, options.batch_size,
                                                       schedule.microbatches));
    ProfileOptions profile;
    profile.device = devices.front();
    profile.optimizer_states = options.optimizer == "sgd" ? 1 : 2;
    profile.further_inputs = sample.further_inputs;
    profile.loss = [targets = sample.targets](const at::Tensor& output) {
      return CrossEntropy(output, targets.to(output.device())).loss;
    };
    TANDEM_ASSIGN_OR_RETURN(outline.profile,
                            ProfileLayers(layers, sample.inputs, profile));
  }
  JobPartition partition;
  TANDEM_ASSIGN_OR_RETURN(partition.cuts,
                          PartitionModel(rule, outline, schedule, described));
  TANDEM_ASSIGN_OR_RETURN(
      partition.table,
      PartitionTable(outline, partition.cuts, schedule, described));
  return partition;
}

// Every rank fails as rank 0 does, with the same code.
constexpr char kError[] = "error";

std::string TextOf(const absl::StatusOr<JobPartition>& partition) {
  if (partition.ok()) return absl::StrJoin(partition->cuts, ",");
  return absl::StrJoin(
      {std::string(kError), absl::StrCat(partition.status().raw_code()),
       std::string(partition.status().message())},
      ",");
}

absl::StatusOr<Cuts> CutsOf(const std::string& text) {
  const std::vector<std::string> error =
      absl::StrSplit(text, absl::MaxSplits(',', 2));
  int code = 0;
  if (error[0] == kError && absl::SimpleAtoi(error[1], &code)) {
    return absl::Status(static_cast<absl::StatusCode>(code), error[2]);
  }
  Cuts cuts;
  for (const auto word : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    cuts.push_back(0);
    if (absl::SimpleAtoi(word, &cuts.back())) continue;
    return absl::InternalError(absl::StrCat("not a cut: ", word));
  }
  return cuts;
}

}  // namespace

absl::StatusOr<JobPartition> PartitionJob(
    const TrainOptions& options, const LayerSpecs& specs,
    const Schedule& schedule, const std::vector<c10::Device>& devices,
    const Dataset& data, Communicator& world) {
  absl::StatusOr<JobPartition> mine = JobPartition();
  if (world.rank() == 0) {
    mine = Partition(options, specs, schedule, devices, data);
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          world.AllGatherString(TextOf(mine), [] {
                            return "where the model is cut";
                          }));
  if (!mine.ok()) return mine.status();
  JobPartition partition = *std::move(mine);
  TANDEM_ASSIGN_OR_RETURN(partition.cuts, CutsOf(all[0]));
  return partition;
}

}  // namespace tandem
