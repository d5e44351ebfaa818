#include "parallel/pipeline/microbatches.h"

#include <ATen/core/Tensor.h>
#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensor_tree.h"
#include "core/base/torch_status.h"
#include "core/model/batch_inputs.h"

namespace tandem {
namespace {

using Sizes = std::vector<int64_t>;

int64_t Sum(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

// Rows of a tensor called `name`.
absl::StatusOr<at::Tensor> SliceRows(const at::Tensor& tensor,
                                     const Batch& batch, int64_t first,
                                     int64_t size, const std::string& name) {
  if (!tensor.defined()) return tensor;
  TANDEM_RETURN_IF_ERROR(CheckSamples(tensor, batch.size, name));
  return tensor.narrow(0, first, size);
}

absl::StatusOr<Batch> SliceBatch(const Batch& batch, int64_t first,
                                 int64_t size) {
  const auto rows = [&](const at::Tensor& tensor, const std::string& name) {
    return SliceRows(tensor, batch, first, size, name);
  };
  Batch part;
  part.size = size;
  part.identity = batch.identity;
  TANDEM_ASSIGN_OR_RETURN(part.inputs, rows(batch.inputs, "inputs"));
  TANDEM_ASSIGN_OR_RETURN(part.targets, rows(batch.targets, "targets"));
  for (const auto& [name, tree] : batch.further_inputs) {
    TANDEM_ASSIGN_OR_RETURN(part.further_inputs[name],
                            MapTensors(tree, name, rows));
  }
  for (const auto& [name, tree] : batch.further_targets) {
    TANDEM_ASSIGN_OR_RETURN(part.further_targets[name],
                            MapTensors(tree, name, rows));
  }
  return part;
}

}  // namespace

std::vector<int64_t> EvenSizes(int64_t samples, int64_t count) {
  CHECK_GE(count, 1);
  count = std::min(count, samples);
  Sizes sizes;
  for (int64_t i = 0; i < count; ++i) {
    sizes.push_back(samples / count + (i < samples % count ? 1 : 0));
  }
  return sizes;
}

std::vector<int64_t> FixedSizes(int64_t samples, int64_t size) {
  CHECK_GE(size, 1);
  Sizes sizes;
  for (int64_t left = samples; left > 0; left -= size) {
    sizes.push_back(std::min(size, left));
  }
  return sizes;
}

absl::StatusOr<std::vector<Batch>> SplitBatch(const Batch& batch,
                                              const Sizes& sizes) {
  CHECK_EQ(Sum(sizes), batch.size);
  if (sizes.size() == 1) return std::vector<Batch>{batch};
  std::vector<Batch> parts;
  int64_t first = 0;
  for (int64_t size : sizes) {
    TANDEM_ASSIGN_OR_RETURN(Batch part, SliceBatch(batch, first, size));
    parts.push_back(std::move(part));
    first += size;
  }
  return parts;
}

bool HasTargets(const Batch& batch) {
  return batch.targets.defined() || !batch.further_targets.empty();
}

absl::StatusOr<LossTargets> BatchTargets(const Batch& batch,
                                         const LossNames& names) {
  TANDEM_ASSIGN_OR_RETURN(TensorsByName further,
                          NamedTargets(batch, names.targets));
  return LossTargets(batch.targets, std::move(further));
}

absl::StatusOr<std::vector<double>> LossWeights(
    const LossFunction& loss, const std::vector<Batch>& microbatches) {
  std::vector<double> weights;
  for (const Batch& each : microbatches) {
    if (!HasTargets(each)) {
      return absl::InvalidArgumentError(
          "the loss weighs by targets, but the batch has none");
    }
    TANDEM_ASSIGN_OR_RETURN(const LossTargets targets,
                            BatchTargets(each, loss.names()));
    TANDEM_ASSIGN_OR_RETURN(const double weight,
                            CatchTorchOr([&] { return loss.weight()(targets); },
                                         "the loss's weight"));
    if (!std::isfinite(weight) || weight < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the loss of a batch of ", each.size, " samples weighs ",
                       weight, ": a weight must be finite and not negative"));
    }
    weights.push_back(weight);
  }
  return weights;
}

std::vector<double> PartsOfTotal(const std::vector<double>& weights,
                                 double total) {
  std::vector<double> parts;
  for (double each : weights) parts.push_back(total == 0 ? 0 : each / total);
  return parts;
}

absl::Status CheckSameDensity(const Score& score, int64_t size,
                              const Score& other, int64_t other_size) {
  if (score.count * other_size == other.count * size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the loss counts ", score.count, " predictions of ", size,
      " samples and ", other.count, " of ", other_size,
      " others, but weighs by samples: give the LossFunction a weight, so that "
      "each prediction counts the same"));
}

}  // namespace tandem
