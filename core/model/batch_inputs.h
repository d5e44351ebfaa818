// Further inputs and targets: what a batch brings beside its inputs, for the
// layers that read it, and beside its targets, for the loss.

#ifndef TANDEM_CORE_MODEL_BATCH_INPUTS_H_
#define TANDEM_CORE_MODEL_BATCH_INPUTS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/model/batch.h"
#include "core/model/layer.h"

namespace tandem {

// The tensors of `batch.further_inputs` that layers read, where they are. A
// tensor within tuples, lists and dicts is called by its path: "boxes[0]" is
// the first of the tuple "boxes", "views['left'][1]" the second of a list in a
// dict.
//
// `names` are those of FurtherInputs(links). InvalidArgument, which names it,
// for one that the batch lacks or has undefined, for one that no layer reads,
// for what is no tensor, and for one whose dimension 0 is not batch.size.
absl::StatusOr<Skips> NamedInputs(const Batch& batch,
                                  const std::vector<std::string>& names);

// The same of `batch.further_targets`; `names` are LossNames::targets.
absl::StatusOr<Skips> NamedTargets(const Batch& batch,
                                   const std::vector<std::string>& names);

// InvalidArgument unless dimension 0 of `tensor`, called `name`, counts `size`
// samples.
absl::Status CheckSamples(const at::Tensor& tensor, int64_t size,
                          absl::string_view name);

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_BATCH_INPUTS_H_
