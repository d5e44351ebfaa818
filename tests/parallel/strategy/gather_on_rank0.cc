#include "tests/parallel/strategy/gather_on_rank0.h"

#include <ATen/core/Tensor.h>

#include <utility>

#include "core/base/status_macros.h"
#include "core/checkpoint/collected_tensors.h"
#include "parallel/strategy/gathered_tensors.h"

namespace tandem {

absl::StatusOr<NamedTensors> GatherOnRank0(const NamedTensors& mine,
                                           Communicator& group) {
  CollectedTensors all;
  TANDEM_RETURN_IF_ERROR(StreamToRank0(mine, group, all));
  for (auto& [name, tensor] : all.tensors) tensor = tensor.clone();
  return std::move(all.tensors);
}

}  // namespace tandem
