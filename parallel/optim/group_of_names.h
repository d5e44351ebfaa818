// Group of names: which of the optimizer's parameter groups a weight of several
// names is in.

#ifndef TANDEM_PARALLEL_OPTIM_GROUP_OF_NAMES_H_
#define TANDEM_PARALLEL_OPTIM_GROUP_OF_NAMES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tandem {

// By a parameter's full name (UpdateOptions::optimizer_group).
using OptimizerGroup = std::function<int64_t(const std::string& name)>;

// `group`, but of a name that `names` has: the greatest number that it gives
// for any of the names listed there. Null for null.
OptimizerGroup GroupOfAny(
    OptimizerGroup group,
    std::map<std::string, std::vector<std::string>> names);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_GROUP_OF_NAMES_H_
