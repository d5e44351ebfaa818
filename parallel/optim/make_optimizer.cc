#include "parallel/optim/make_optimizer.h"

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/optimizer_rule.h"

namespace tandem {
namespace {

// Whether `rule` can step what the buffers hold.
absl::Status CheckFits(const OptimizerRule& rule,
                       const FlatBufferList& buffers) {
  if (!rule.traits().steps_matrices) return absl::OkStatus();
  for (const FlatBuffer* buffer : buffers) {
    for (const FlatSlot& slot : buffer->slots()) {
      if (slot.parameter.dim() == 2) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", slot.name, " is ", DescribeTensor(slot.parameter),
          ", but ", rule.traits().name, ", the optimizer of group ",
          buffer->group(),
          ", steps matrices, of two dimensions: put it into another group"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ParameterGroup> MakeGroup(const OptimizerOptions& options,
                                         FlatBufferList buffers) {
  ParameterGroup group;
  TANDEM_ASSIGN_OR_RETURN(group.rule, MakeOptimizerRule(options));
  TANDEM_RETURN_IF_ERROR(CheckFits(*group.rule, buffers));
  group.buffers = std::move(buffers);
  return group;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
    const OptimizerOptions& options, const FlatBufferList& buffers,
    const ShareOfBuffer& share_of) {
  std::vector<ParameterGroup> groups(1);
  TANDEM_ASSIGN_OR_RETURN(groups[0], MakeGroup(options, buffers));
  return std::make_unique<Optimizer>(std::move(groups), share_of);
}

absl::StatusOr<std::unique_ptr<Optimizer>> MakeGroupedOptimizer(
    const std::vector<OptimizerOptions>& options, const FlatBufferList& buffers,
    const ShareOfBuffer& share_of) {
  std::vector<std::vector<FlatBuffer*>> parts(options.size());
  for (FlatBuffer* buffer : buffers) {
    const auto group = static_cast<size_t>(buffer->group());
    if (group >= options.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", buffer->slots()[0].name, " is in optimizer group ",
          buffer->group(), ", but there are options for ", options.size(),
          " groups, counted from 0"));
    }
    parts[group].push_back(buffer);
  }
  std::vector<ParameterGroup> groups(options.size());
  for (size_t group = 0; group < options.size(); ++group) {
    TANDEM_ASSIGN_OR_RETURN(
        groups[group],
        MakeGroup(options[group], FlatBufferList(std::move(parts[group]))));
  }
  return std::make_unique<Optimizer>(std::move(groups), share_of);
}

}  // namespace tandem
