#include "parallel/pipeline/model.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/device_trace.h"
#include "core/model/axis/tensor_parallel.h"
#include "core/model/layer_list.h"
#include "core/model/reproducible.h"
#include "core/precision/mixed_precision.h"
#include "parallel/channel/message_layout.h"

namespace tandem {
namespace {

int StageOfLayer(const Cuts& cuts, int64_t layer) {
  return static_cast<int>(std::upper_bound(cuts.begin(), cuts.end(), layer) -
                          cuts.begin());
}

// The stage that has the parameter which `own` of layer `layer` is tied to.
absl::StatusOr<int> StageOfOwner(const LayerSpecs& specs, const Cuts& cuts,
                                 size_t layer, const std::string& own,
                                 const std::string& other) {
  std::map<int, std::string> owners;  // by stage, a layer that may have it
  for (size_t i = 0; i < layer; ++i) {
    if (!absl::StartsWith(other, specs[i].name + ".")) continue;
    owners[StageOfLayer(cuts, static_cast<int64_t>(i))] = specs[i].name;
  }
  if (owners.size() == 1) return owners.begin()->first;
  const std::string tie =
      absl::StrCat("parameter ", own, " of layer ", specs[layer].name,
                   " is tied to ", other);
  if (owners.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(tie, ", which no layer before it has"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      tie, ", which may be one of layer ", owners.begin()->second,
      " or of layer ", std::next(owners.begin())->second,
      ", in another stage: give one of these layers another name"));
}

std::string StageName(int stage, c10::Device device) {
  return absl::StrCat("stage ", stage, ", on ", device.str());
}

std::vector<std::string> LayerNames(const LayerSpecs& specs) {
  std::vector<std::string> names;
  for (const LayerSpec& each : specs) names.push_back(each.name);
  return names;
}

LayerList Make(const LayerSpecs& specs, const PipelineModelOptions& options) {
  if (!options.reproducible) return MakeLayers(specs, options.seed);
  LayerList layers;
  for (const LayerSpec& each : specs) {
    // One that does not see the others shares nothing with them.
    layers.push_back(MakeLayers({each}, options.seed).front());
  }
  return layers;
}

// Does what crosses the cuts between ranks fit into a message?
absl::Status CheckMessages(const LayerSpecs& specs, const Schedule& schedule,
                           const PipelineLayout& layout, const Cuts& cuts,
                           const LossNames& loss) {
  const std::vector<LayerLinks> links = LinksByLayer(specs);
  const std::vector<int> device_of = DevicesOfStages(schedule);
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (layout.RankFor(device_of[i]) == layout.RankFor(device_of[i + 1])) {
      continue;
    }
    const auto cut = static_cast<size_t>(cuts[i]);
    const std::vector<std::string> skips =
        SkipsBefore(links, cut, loss.outputs);
    const size_t tensors = 1 + skips.size();
    if (tensors <= kMostTensors) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        tensors, " tensors cross the cut before layer ", specs[cut].name,
        ", behind stage ", i, ", but between ranks ", kMostTensors,
        " at most can: cut where fewer skip connections and further inputs are "
        "on their way; there it is ",
        ShortList(skips)));
  }
  return absl::OkStatus();
}

// The last stage ends in it.
absl::Status CheckLoss(const LossFunction& loss) {
  if (loss) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "there is no loss function where the last stage is");
}

absl::Status Check(const LayerSpecs& specs, const Schedule& schedule,
                   const PipelineLayout& layout, const Cuts& cuts,
                   const LossNames& loss) {
  const auto count = static_cast<int64_t>(specs.size());
  TANDEM_RETURN_IF_ERROR(CheckLayerNames(specs));
  TANDEM_RETURN_IF_ERROR(CheckCuts(cuts, count));
  TANDEM_RETURN_IF_ERROR(CheckLayout(schedule, layout));
  if (cuts.size() + 1 != static_cast<size_t>(schedule.stages)) {
    return absl::InvalidArgumentError(absl::StrCat(
        cuts.size(), " cuts make ", cuts.size() + 1, " stages, but schedule ",
        schedule.name, " has ", schedule.stages));
  }
  TANDEM_RETURN_IF_ERROR(CheckSkips(LinksByLayer(specs), loss.outputs));
  return CheckMessages(specs, schedule, layout, cuts, loss);
}

}  // namespace

absl::StatusOr<std::vector<TiedGroup>> TiedAcross(const LayerSpecs& specs,
                                                  const Cuts& cuts,
                                                  bool copies_ties) {
  std::map<std::string, TiedGroup> groups;  // by the first member's name
  // What a tied parameter is tied to may itself be tied.
  std::map<std::string, StageParameter> first_of;
  for (size_t i = 0; i < specs.size(); ++i) {
    for (const auto& [own, other] : specs[i].links.ties) {
      TANDEM_ASSIGN_OR_RETURN(const int owner,
                              StageOfOwner(specs, cuts, i, own, other));
      StageParameter mine = {StageOfLayer(cuts, static_cast<int64_t>(i)),
                             absl::StrCat(specs[i].name, ".", own)};
      const StageParameter target = {owner, other};
      const StageParameter first =
          first_of.try_emplace(other, target).first->second;
      first_of[mine.name] = first;
      mine.is_shared = mine.stage == target.stage && !copies_ties;
      if (mine.is_shared && mine.stage == first.stage) continue;
      TiedGroup& group = groups[first.name];
      if (group.empty()) group.push_back(first);
      group.push_back(mine);
    }
  }
  std::vector<TiedGroup> result;
  for (auto& each : groups) result.push_back(std::move(each.second));
  return result;
}

absl::StatusOr<PipelineExecutor::Stages> MakeStages(
    const LayerSpecs& specs, const Schedule& schedule,
    const PipelineLayout& layout, const PipelineModelOptions& options,
    const LossFunction& loss) {
  TANDEM_RETURN_IF_ERROR(
      Check(specs, schedule, layout, options.cuts, loss.names()));
  TANDEM_RETURN_IF_ERROR(
      CheckSomeLayerIsMeant(LayerNames(specs), options.selective));
  const std::vector<LayerLinks> links = LinksByLayer(specs);
  const std::vector<LayerRange> parts =
      LayerRanges(options.cuts, static_cast<int64_t>(specs.size()));
  const std::vector<int> device_of = DevicesOfStages(schedule);
  PipelineExecutor::Stages stages(parts.size());
  for (int i = 0; i < schedule.stages; ++i) {
    const int device = device_of[static_cast<size_t>(i)];
    if (!layout.IsHere(device)) continue;
    const LayerRange& part = parts[static_cast<size_t>(i)];
    StageOptions stage;
    stage.device = layout.DeviceFor(device);
    stage.name = StageName(i, stage.device);
    stage.track = DeviceTrack(device);
    const auto skips_before = [&](int64_t layer) {
      return SkipsBefore(links, static_cast<size_t>(layer),
                         loss.names().outputs);
    };
    stage.incoming = skips_before(part.begin);
    stage.outgoing = skips_before(part.end);
    if (i + 1 == schedule.stages) {
      TANDEM_RETURN_IF_ERROR(CheckLoss(loss));
      stage.loss = loss;
    }
    stage.splits_backward = options.splits_backward;
    stage.weight_gradient_batch = options.weight_gradient_batch;
    stage.records_statistics = options.reproducible;
    stage.crosses_borders = options.reproducible;
    stage.param_dtype = options.param_dtype;
    TANDEM_ASSIGN_OR_RETURN(
        stage.checkpointed,
        CheckpointedGroups(
            LayerNames({specs.begin() + part.begin, specs.begin() + part.end}),
            options.selective));
    if (options.tensor_parallel) {
      stage.tensor_parallel = options.tensor_parallel(i);
    }
    LayerList layers;
    {
      const TensorParallelScope divided(stage.tensor_parallel);
      layers =
          Make({specs.begin() + part.begin, specs.begin() + part.end}, options);
    }
    if (options.reproducible) {
      TANDEM_RETURN_IF_ERROR(CheckReproducible(layers));
    }
    if (options.recomputes || !stage.checkpointed.empty()) {
      TANDEM_RETURN_IF_ERROR(CheckRecomputable(layers, stage.device));
    }
    const absl::Status moved = options.leaves_trained
                                   ? MoveUntrained(layers, stage.device)
                                   : MoveLayers(layers, stage.device);
    TANDEM_RETURN_IF_ERROR(Annotate(moved, stage.name));
    if (options.buffer_dtype) {
      CastBuffers(NamedBuffers(layers), *options.buffer_dtype);
    }
    stages[static_cast<size_t>(i)] =
        std::make_unique<PipelineStage>(std::move(layers), std::move(stage));
  }
  return stages;
}

namespace {

template <NamedTensors (*tensors_of)(const LayerList&)>
NamedTensors StageTensors(const PipelineExecutor::Stages& stages) {
  NamedTensors all;
  for (const auto& stage : stages) {
    if (stage == nullptr) continue;
    for (auto& each : tensors_of(stage->layers())) {
      all.push_back(std::move(each));
    }
  }
  return all;
}

}  // namespace

NamedTensors NamedParameters(const PipelineExecutor::Stages& stages) {
  return StageTensors<NamedParameters>(stages);
}

NamedTensors NamedBuffers(const PipelineExecutor::Stages& stages) {
  return StageTensors<NamedBuffers>(stages);
}

}  // namespace tandem
