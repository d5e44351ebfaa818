#include "parallel/pipeline/microbatches.h"

#include <ATen/core/Tensor.h>
#include <glog/logging.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "core/base/status_macros.h"
#include "core/base/tensor_tree.h"
#include "core/model/batch_inputs.h"

namespace tandem {
namespace {

using Sizes = std::vector<int64_t>;

int64_t SumOf(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

// Rows of a tensor called `name`.
absl::StatusOr<at::Tensor> RowsOf(const at::Tensor& tensor, const Batch& batch,
                                  int64_t first, int64_t size,
                                  const std::string& name) {
  if (!tensor.defined()) return tensor;
  TANDEM_RETURN_IF_ERROR(CheckSamples(tensor, batch.size, name));
  return tensor.narrow(0, first, size);
}

absl::StatusOr<Batch> SamplesOf(const Batch& batch, int64_t first,
                                int64_t size) {
  const auto rows = [&](const at::Tensor& tensor, const std::string& name) {
    return RowsOf(tensor, batch, first, size, name);
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
  CHECK_EQ(SumOf(sizes), batch.size);
  if (sizes.size() == 1) return std::vector<Batch>{batch};
  std::vector<Batch> parts;
  int64_t first = 0;
  for (int64_t size : sizes) {
    TANDEM_ASSIGN_OR_RETURN(Batch part, SamplesOf(batch, first, size));
    parts.push_back(std::move(part));
    first += size;
  }
  return parts;
}

}  // namespace tandem
