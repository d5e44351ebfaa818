// What the ranks of a MeshStrategy must agree on before the first step.

#include <map>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/model/layer_list.h"
#include "parallel/ddp/model_state.h"
#include "parallel/ddp/option_checks.h"
#include "parallel/strategy/mesh_strategy_impl.h"

namespace tandem {
namespace {

// Which option calls them, by name.
std::map<std::string, std::string> NamesIn(
    const DistributedDataParallelOptions& ddp) {
  std::map<std::string, std::string> names;
  for (const std::string& name : ddp.parameters_to_ignore) {
    names[name] = "parameters_to_ignore";
  }
  for (const std::string& name : ddp.delay_all_reduce_named_params) {
    names[name] = "delay_all_reduce_named_params";
  }
  if (!ddp.param_to_hook_all_reduce.empty()) {
    names[ddp.param_to_hook_all_reduce] = "param_to_hook_all_reduce";
  }
  return names;
}

// Of lines "STAGE NAME".
std::map<std::string, std::string> PlacesOf(const std::string& lines) {
  std::map<std::string, std::string> stage_of;
  for (const absl::string_view line :
       absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    stage_of[parts.second] = parts.first;
  }
  return stage_of;
}

absl::Status CheckPlaces(const DistributedDataParallelOptions& ddp,
                         const std::map<std::string, std::string>& stage_of) {
  for (const auto& [name, option] : NamesIn(ddp)) {
    if (stage_of.count(name) > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(option, " names ", name,
                     ", but no stage has such a parameter or buffer"));
  }
  const std::string& until = ddp.param_to_hook_all_reduce;
  for (const std::string& name : ddp.delay_all_reduce_named_params) {
    if (stage_of.at(name) == stage_of.at(until)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "delay_all_reduce_named_params names ", name, ", which is in stage ",
        stage_of.at(name), ", but param_to_hook_all_reduce ", until,
        ", which is in stage ", stage_of.at(until),
        ": name parameters of one stage"));
  }
  return absl::OkStatus();
}

}  // namespace

// What one rank cannot make none goes on without. Collective.
absl::Status MeshStrategyImpl::Agree(const absl::Status& mine) {
  Communicator* const world = groups_.world();
  if (world == nullptr) return mine;
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      world->AllGatherString(std::string(mine.message()), [] {
        return "whether all ranks have made their stages";
      }));
  if (!mine.ok()) return mine;
  for (int rank = 0; rank < world->size(); ++rank) {
    const std::string& reason = all[static_cast<size_t>(rank)];
    if (reason.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", world->NameOf(rank), ": ", reason));
  }
  return absl::OkStatus();
}

// What options call by name must be there, and what waits for a parameter must
// be in its stage. Collective over the pipeline.
absl::Status MeshStrategyImpl::CheckNames() const {
  const DistributedDataParallelOptions& ddp = options_.ddp;
  if (groups_.pipe() == nullptr) {
    TANDEM_RETURN_IF_ERROR(CheckDdpOptions(ddp, Parameters(), Buffers()));
  }
  const std::map<std::string, std::string> named = NamesIn(ddp);
  if (named.empty()) return absl::OkStatus();
  std::string mine;
  for (size_t i = 0; i < executor_->stages().size(); ++i) {
    const auto& stage = executor_->stages()[i];
    if (stage == nullptr) continue;
    for (const NamedTensors& part :
         {NamedParameters(stage->layers()), NamedBuffers(stage->layers())}) {
      for (const auto& each : part) {
        if (named.count(each.first) == 0) continue;
        absl::StrAppend(&mine, i, " ", each.first, "\n");
      }
    }
  }
  std::vector<std::string> all = {mine};
  if (groups_.pipe() != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(all, groups_.pipe()->AllGatherString(mine, [] {
      return "which stages have what options name";
    }));
  }
  return CheckPlaces(ddp, PlacesOf(absl::StrJoin(all, "")));
}

absl::Status MeshStrategyImpl::CompareReplicas() {
  if (groups_.replicas() == 1 || !options_.ddp.init_sync) {
    return absl::OkStatus();
  }
  absl::Status differ;
  for (size_t i = 0; i < executor_->stages().size(); ++i) {
    const auto& stage = executor_->stages()[i];
    if (stage == nullptr) continue;
    const NamedTensors parameters = NamedParameters(stage->layers());
    const std::vector<std::string> ignored =
        WithFirstNames(options_.ddp, parameters).parameters_to_ignore;
    NamedTensors model;  // what is alike
    for (const NamedTensors& part :
         {UnderFirstNames(parameters), NamedBuffers(stage->layers())}) {
      for (const auto& each : part) {
        if (!absl::c_linear_search(ignored, each.first)) model.push_back(each);
      }
    }
    differ.Update(
        Annotate(CheckSameModel(model, *groups_.data(static_cast<int>(i))),
                 stage->name()));
  }
  return Agree(differ);
}

}  // namespace tandem
