#include "core/model/axis/tensor_parallel.h"

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

std::string Joined(const std::string& outer, const std::string& inner) {
  return inner.empty() ? outer : absl::StrCat(outer, ".", inner);
}

// Refuses what knows nothing of sequence parallelism.
void CheckMayStayWhole(const torch::nn::Module& module, const std::string& name,
                       const TensorParallel& parallel) {
  TORCH_CHECK_VALUE(
      !parallel.sequence_parallel || module.named_parameters(false).is_empty(),
      name, " (", module.name(), ") has parameters, and knows nothing of ",
      "sequence parallelism along ", parallel.group->axis(),
      ": do without that, or derive the module from TensorParallelModule "
      "(core/model/axis/tensor_parallel.h)");
}

}  // namespace

std::shared_ptr<const TensorParallel> TensorParallelScope::Current() {
  const auto& current = ComputeContext::Current().tensor_parallel;
  const bool is_divided = current != nullptr && current->group->degree() > 1;
  return is_divided ? current : nullptr;
}

TraitsByName DivideModule(torch::nn::Module& module, const std::string& name) {
  const auto parallel = TensorParallelScope::Current();
  TraitsByName all;
  if (parallel == nullptr) return all;
  for (const auto& item : module.named_modules()) {
    const std::string full = Joined(name, item.key());
    auto* const divided =
        dynamic_cast<TensorParallelModule*>(item.value().get());
    if (divided == nullptr) {
      CheckMayStayWhole(*item.value(), full, *parallel);
      continue;
    }
    for (auto& [parameter, traits] : divided->Divide(*parallel, full)) {
      all[item.key().empty() ? parameter : Joined(item.key(), parameter)] =
          traits;
    }
  }
  return all;
}

ParameterTraits ShardTraits(const TensorParallel& parallel,
                            const ParameterShard& shard) {
  ParameterTraits traits;
  traits.shard = shard;
  traits.shard->axis = parallel.group->axis();
  return traits;
}

TraitsByName SummedTraits(const TensorParallel& parallel,
                          const std::vector<std::string>& names) {
  TraitsByName all;
  for (const std::string& name : names) {
    all[name].reduce_axes.push_back(parallel.group->axis());
  }
  return all;
}

TraitsByName SequenceTraits(const TensorParallel& parallel,
                            const std::vector<std::string>& names) {
  return parallel.sequence_parallel ? SummedTraits(parallel, names)
                                    : TraitsByName();
}

int64_t ShareOfRank(const TensorParallel& parallel, int64_t count,
                    const std::string& things, const std::string& name) {
  const int64_t degree = parallel.group->degree();
  TORCH_CHECK_VALUE(count % degree == 0, name, " has ", count, " ", things,
                    ", which ", degree, " ranks along ", parallel.group->axis(),
                    " cannot share evenly: choose a degree that divides ",
                    count);
  return count / degree;
}

}  // namespace tandem
