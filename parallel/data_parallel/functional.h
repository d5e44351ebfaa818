// torch.nn.parallel.data_parallel for C++: one forward with replicas of its
// own, for a module that is called once.

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_FUNCTIONAL_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_FUNCTIONAL_H_

#include <utility>

#include "core/base/status_macros.h"
#include "parallel/data_parallel/data_parallel.h"

namespace tandem {

// DataParallel::Create, and its Forward. The output's graph keeps what it needs
// of the replicas.
template <typename Module, typename... Args>
auto RunDataParallel(Module module, const DataParallelOptions& options,
                     Args&&... args)
    -> decltype(std::declval<DataParallel<Module>&>().Forward(
        std::forward<Args>(args)...)) {
  TANDEM_ASSIGN_OR_RETURN(const auto parallel,
                          MakeDataParallel(std::move(module), options));
  return parallel->Forward(std::forward<Args>(args)...);
}

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_FUNCTIONAL_H_
