// Load plan: which stored tensor becomes which of a model's, and what is left
// on both sides. PyTorch's load_state_dict with `missing_keys` and
// `unexpected_keys`, but known before anything is read.

#ifndef TANDEM_CORE_WEIGHTS_LOAD_PLAN_H_
#define TANDEM_CORE_WEIGHTS_LOAD_PLAN_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/checkpoint/tensor_stream.h"

namespace tandem {

// What a stored tensor is to a model.
struct StateName {
  std::string name;      // in the model
  std::string left_out;  // why it is not loaded; empty: it is
};

struct NameRules {
  // By its name in the file. Null: names are the model's.
  std::function<StateName(const std::string& stored)> of = {};
  // Parameters that are another one, which comes before: copy to first. Stored
  // is either, or both, of which the first counts.
  std::map<std::string, std::string> tied = {};
};

// Names whose absence is no error, each whole or as a pattern of a shell:
// "lm_head.weight", "*.bias". The model's names may be missing from the file,
// or stand there for a tensor of another shape, and the file's may be
// unexpected.
struct LoadAllowances {
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
};

using NameList = std::vector<std::string>;

// Stored under both names of a tied weight: the first is loaded.
struct TiedPair {
  StoredTensor first, copy;
};

struct LoadPlan {
  StoredTensors tensors;                    // by the model's names
  NameList wrappers;                        // what was left out of stored names
  std::map<std::string, NameList> by_rule;  // not loaded: why, and which
  std::vector<TiedPair> tied;               // their copies are not loaded
  NameList missing;                         // as allowed: they stay as they are
  NameList reshaped;                        // the same, stored in another shape
  NameList unexpected;                      // as allowed: not loaded
};

// Reads nothing. `model`: the whole model's tensors. Stored names may have what
// PyTorch's wrappers put in them: "_orig_mod." of torch.compile, and before all
// of them "module." of DistributedDataParallel. InvalidArgument, naming
// all of a kind (shortened where there are many): what is missing or left over
// and not allowed; shapes that differ, with what was given and expected; two
// stored tensors that are the same one of the model.
absl::StatusOr<LoadPlan> PlanLoading(const StoredTensors& stored,
                                     const std::vector<TensorInfo>& model,
                                     const NameRules& rules,
                                     const LoadAllowances& allowances);

// Reads both tensors of each tied pair. InvalidArgument, naming them, where
// they are not the same: the model has no place for the second.
absl::Status CheckTied(const LoadPlan& plan);

// What is loaded and what is not, for a person: one line.
std::string Describe(const LoadPlan& plan);

}  // namespace tandem

#endif  // TANDEM_CORE_WEIGHTS_LOAD_PLAN_H_
