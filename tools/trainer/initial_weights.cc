#include "tools/trainer/initial_weights.h"

#include <ATen/core/Tensor.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/named_tensors.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/step_folders.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/checkpoint/row_parts.h"
#include "core/weights/load_plan.h"
#include "core/weights/stored_weights.h"
#include "models/hugging_face/state_names.h"

namespace tandem {
namespace {

NamedTensors OwnModel(const Strategy& strategy) {
  NamedTensors own = strategy.Parameters();
  for (auto& each : strategy.Buffers()) own.push_back(each);
  return own;
}

// A line a tensor: name, sizes.
std::string ModelShapes(const NamedTensors& tensors) {
  return absl::StrJoin(tensors, "\n", [](std::string* out, const auto& each) {
    absl::StrAppend(out, each.first, "\t",
                    absl::StrJoin(each.second.sizes(), ","));
  });
}

absl::StatusOr<TensorInfo> ParseShape(absl::string_view line) {
  const std::vector<std::string> parts = absl::StrSplit(line, '\t');
  TensorInfo info = {parts[0], c10::ScalarType::Undefined, {}};
  const std::string sizes = parts.size() == 2 ? parts[1] : "?";
  for (const auto word : absl::StrSplit(sizes, ',', absl::SkipEmpty())) {
    info.sizes.push_back(0);
    if (absl::SimpleAtoi(word, &info.sizes.back())) continue;
    return absl::InternalError(absl::StrCat("not a tensor's shape: ", line));
  }
  return info;
}

// The whole model's tensors, whoever has them. Collective.
absl::StatusOr<std::vector<TensorInfo>> WholeModel(const NamedTensors& own,
                                                   const RowParts& parts,
                                                   Communicator& world) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          world.AllGatherString(ModelShapes(own), [] {
                            return "the model's tensors";
                          }));
  const std::set<std::string> different(all.begin(), all.end());
  std::map<std::string, TensorInfo> model;
  for (const std::string& theirs : different) {
    for (const auto line : absl::StrSplit(theirs, '\n', absl::SkipEmpty())) {
      TANDEM_ASSIGN_OR_RETURN(TensorInfo info, ParseShape(line));
      model.emplace(info.name, info);
    }
  }
  std::vector<TensorInfo> infos;
  for (auto& each : model) infos.push_back(std::move(each.second));
  return WithoutParts(infos, parts);
}

// Weights, and from how many files they come, for a person.
struct Source {
  StoredTensors tensors;
  std::string text;
};

StoredTensors WithoutOptimizer(const StoredWeights& weights) {
  if (!IsCheckpointMetadata(weights.metadata)) return weights.tensors;
  StoredTensors model;
  for (const StoredTensor& each : weights.tensors) {
    if (!IsOptimizerStateName(each.info.name)) model.Add(each);
  }
  return model;
}

// A checkpoint's folder, or weights of any maker.
absl::StatusOr<Source> OpenSource(const std::string& path) {
  if (const auto checkpoint = CheckpointFolderAt(path)) {
    TANDEM_ASSIGN_OR_RETURN(const StoredCheckpoint stored,
                            OpenCheckpointAt(*checkpoint));
    return Source{stored.model, "a checkpoint"};
  }
  TANDEM_ASSIGN_OR_RETURN(const StoredWeights weights, OpenWeights(path));
  const size_t files = weights.files.size();
  return Source{WithoutOptimizer(weights),
                absl::StrCat(files, files == 1 ? " file" : " files")};
}

// What may be missing is its own replacement.
StoredTensors WithMissing(const LoadPlan& plan, const NamedTensors& own,
                          const RowParts& parts) {
  StoredTensors whole = DivideRows(plan.tensors, parts);
  const std::set<std::string> missing(plan.missing.begin(), plan.missing.end());
  for (const auto& [name, tensor] : own) {
    const auto part = FindPart(name, parts);
    if (missing.count(part ? part->whole : name) == 0) continue;
    const at::Tensor values = tensor.detach();
    whole.Add({InfoOf(name, values),
               [values] { return absl::StatusOr<at::Tensor>(values); },
               nullptr});
  }
  return whole;
}

// Rank 0 reads them for all. Collective.
absl::Status CheckTiedTogether(const LoadPlan& plan, Communicator& world) {
  const absl::Status mine =
      world.rank() == 0 ? CheckTied(plan) : absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      world.AllGatherString(std::string(mine.message()),
                            [] { return "what is tied of the weights"; }));
  if (!mine.ok() || all[0].empty()) return mine;
  return absl::InvalidArgumentError(all[0]);
}

absl::StatusOr<std::string> Load(Job& job) {
  const TrainOptions& options = job.options;
  TANDEM_ASSIGN_OR_RETURN(const Source source, OpenSource(options.init_from));
  const NamedTensors own = OwnModel(*job.strategy);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<TensorInfo> model,
                          WholeModel(own, job.row_parts, *job.world));
  const NameRules rules = job.transformer.has_value()
                              ? StateNamesOf(job.transformer->model)
                              : NameRules();
  TANDEM_ASSIGN_OR_RETURN(
      const LoadPlan plan,
      PlanLoading(source.tensors, model, rules,
                  {options.allow_missing, options.allow_unexpected}));
  if (!rules.tied.empty()) {
    TANDEM_RETURN_IF_ERROR(CheckTiedTogether(plan, *job.world));
  }
  TANDEM_RETURN_IF_ERROR(
      job.strategy->LoadModelState(WithMissing(plan, own, job.row_parts)));
  std::string text = absl::StrCat("initial weights from ", options.init_from,
                                  " (", source.text, "): ", Describe(plan));
  if (job.transformer.has_value() && !job.transformer->note.empty()) {
    absl::StrAppend(&text, "; ", job.transformer->note);
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> LoadInitialWeights(Job& job) {
  auto loaded = Load(job);
  if (loaded.ok()) return loaded;
  return Annotate(loaded.status(),
                  absl::StrCat("--init_from=", job.options.init_from));
}

}  // namespace tandem
