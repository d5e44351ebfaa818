// DataParallel as a module: what DistributedDataParallel takes where each rank
// has several devices with a replica each (the DDP tutorial's demo_basic).

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_DATA_PARALLEL_TRAITS_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_DATA_PARALLEL_TRAITS_H_

#include <memory>
#include <utility>

#include "core/base/named_tensors.h"
#include "core/model/module_traits.h"
#include "parallel/data_parallel/data_parallel.h"

namespace tandem {

template <typename Module>
struct ModuleTraits<std::shared_ptr<DataParallel<Module>>> {
  using Wrapped = std::shared_ptr<DataParallel<Module>>;
  static NamedTensors Parameters(const Wrapped& wrapped) {
    return ModuleTraits<Module>::Parameters(wrapped->module());
  }
  static NamedTensors Buffers(const Wrapped& wrapped) {
    return ModuleTraits<Module>::Buffers(wrapped->module());
  }
  template <typename... Args>
  static auto Call(Wrapped& wrapped, Args&&... args) {
    return wrapped->Forward(std::forward<Args>(args)...);
  }
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_DATA_PARALLEL_TRAITS_H_
