#include "tools/trainer/parameter_histograms.h"

#include <ATen/core/Tensor.h>
#include <glog/logging.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/comm/communicator.h"
#include "core/mesh/mesh.h"
#include "parallel/strategy/strategy.h"

namespace tandem {
namespace {

void AddHistograms(const std::string& section, const NamedTensors& tensors,
                   Summary* summary) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() == 0) continue;
    const absl::Status added =
        summary->AddHistogram(absl::StrCat(section, "/", name), tensor);
    if (added.ok()) continue;
    LOG_FIRST_N(WARNING, 1)
        << "a histogram of --histograms_every is left out: " << added.message();
  }
}

// The histograms of this rank's part of the first replica.
absl::StatusOr<Summary> OwnHistograms(Job& job) {
  Summary own;
  if (job.mesh.ReplicaIndex(job.launch.rank) > 0) return own;
  // Devices are waited for.
  TANDEM_RETURN_IF_ERROR(job.strategy->PartToSave().status());
  AddHistograms("weights", job.strategy->Parameters(), &own);
  AddHistograms("gradients", job.strategy->Gradients(), &own);
  return own;
}

}  // namespace

absl::StatusOr<Summary> ParameterHistograms(Job& job) {
  TANDEM_ASSIGN_OR_RETURN(Summary own, OwnHistograms(job));
  if (job.mesh.pipe() > 1) {
    TANDEM_ASSIGN_OR_RETURN(
        const std::vector<std::string> all,
        job.world->AllGatherString(own.message(), [] {
          return std::string("histograms of parameters (--histograms_every)");
        }));
    for (size_t i = 1; i < all.size(); ++i) own.Append(all[i]);
  }
  return job.is_rank_zero() ? own : Summary();
}

}  // namespace tandem
