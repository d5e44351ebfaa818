// Grouped optimizer: one for each parameter group (torch.optim's param_groups).

#ifndef TANDEM_PARALLEL_OPTIM_GROUPED_OPTIMIZER_H_
#define TANDEM_PARALLEL_OPTIM_GROUPED_OPTIMIZER_H_

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/named_tensors.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/stored_tensors.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/optim/optimizer.h"
#include "parallel/optim/optimizer_share.h"

namespace tandem {

// "fc.weight" of "fc.weight.momentum_buffer": whose state it is.
std::string ParameterOf(const std::string& state_name);

// Steps parameters of different groups with different options, at one learning
// rate. State has the names that it has without groups, so that a checkpoint
// does not depend on them. Not thread-safe.
class GroupedOptimizer {
 public:
  // `options[g]` are for the buffers of group g; a group may have none.
  // InvalidArgument, naming a parameter, for a buffer of a further group; those
  // of MakeOptimizer. `buffers` must outlive the optimizer.
  static absl::StatusOr<GroupedOptimizer> Create(
      const std::vector<OptimizerOptions>& options,
      const FlatBufferList& buffers, const ShareOfBuffer& share_of = nullptr);

  void Step(double learning_rate,
            const Optimizer::DivisorOf& divisor_of = nullptr);
  // As Optimizer's, of all groups.
  void StepUnless(const at::Tensor& found_inf, double learning_rate,
                  const std::optional<at::Tensor>& divisor = std::nullopt);
  void StepDivided(double learning_rate, const at::Tensor& divisor);
  // Of all groups.
  FlatBufferList buffers() const;

  // As Optimizer's. State comes group by group.
  NamedTensors State() const;
  absl::StatusOr<NamedTensors> GatherState(Optimizer::GatherPart gather) const;
  StatePart SharedState() const;
  absl::Status LoadState(const StoredTensors& state);
  absl::Status CheckState(const StoredTensors& state) const;

 private:
  GroupedOptimizer() = default;

  std::vector<StoredTensors> ByGroup(const StoredTensors& state) const;

  size_t GroupOf(const std::string& state_name) const;

  std::vector<std::unique_ptr<Optimizer>> optimizers_;  // by group
  std::map<std::string, size_t> groups_;  // by the parameter's name
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_GROUPED_OPTIMIZER_H_
