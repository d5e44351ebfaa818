// Checks of DistributedDataParallel's options against a model.

#ifndef TANDEM_PARALLEL_DDP_OPTION_CHECKS_H_
#define TANDEM_PARALLEL_DDP_OPTION_CHECKS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/tensors.h"
#include "parallel/ddp/options.h"
#include "parallel/ddp/reducer_buckets.h"

namespace tandem {

// The reducer's, for a model with these parameters, of which
// param_to_hook_all_reduce may be one; delayed buffers are the caller's affair.
ReducerOptions MakeReducerOptions(const DistributedDataParallelOptions& options,
                                  const NamedTensors& parameters);

// `parameters` without those that are the same tensor as an earlier one (a tied
// weight): its first name is the one that counts.
NamedTensors UnderFirstNames(const NamedTensors& parameters);

// By the first name of each tensor that has several, all of its names.
std::map<std::string, std::vector<std::string>> NamesOfTied(
    const NamedTensors& parameters);

// `options` whose lists of parameters name tied weights by their first names,
// whichever name they were given by, and whose optimizer_group, asked for such
// a name, goes by all of them.
DistributedDataParallelOptions WithFirstNames(
    DistributedDataParallelOptions options, const NamedTensors& parameters);

// InvalidArgument, naming it, for a parameter that requires a gradient and is
// no leaf, such as a product with a tensor that requires one: nothing would be
// gathered for it.
absl::Status CheckAreLeaves(const NamedTensors& parameters);

// InvalidArgument, naming the option: a bucket cap that is not positive,
// delayed parameters without one to wait for, options that exclude each other.
absl::Status CheckDdpValues(const DistributedDataParallelOptions& options);

// The same, and for a name that is none of the model's, a parameter that is no
// leaf, and a model without a parameter that requires a gradient and is to be
// averaged.
absl::Status CheckDdpOptions(const DistributedDataParallelOptions& options,
                             const NamedTensors& parameters,
                             const NamedTensors& buffers);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_OPTION_CHECKS_H_
