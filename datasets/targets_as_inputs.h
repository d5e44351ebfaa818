// Targets as inputs: a data set whose targets are further inputs, too, for
// models whose layers look at them before the loss does.

#ifndef TANDEM_DATASETS_TARGETS_AS_INPUTS_H_
#define TANDEM_DATASETS_TARGETS_AS_INPUTS_H_

#include <memory>
#include <string>

#include "datasets/dataset.h"

namespace tandem {

// The samples of `data`, whose batches have their targets as the further input
// `name`, too (Batch::further_inputs), wherever inputs are wanted. Thread-safe
// as `data` is.
std::shared_ptr<const Dataset> TargetsAsInputs(
    std::shared_ptr<const Dataset> data, const std::string& name);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TARGETS_AS_INPUTS_H_
