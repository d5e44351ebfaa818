#include "tools/trainer/starting_point.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/step_folders.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/checkpoint/row_parts.h"
#include "core/comm/group_agreement.h"
#include "core/digest/hmac_sha256.h"
#include "core/program/long_task.h"
#include "core/weights/load_plan.h"
#include "core/weights/stored_weights.h"
#include "models/hugging_face/model_config.h"
#include "models/lora/lora.h"
#include "models/lora/merged_weights.h"
#include "tools/trainer/checkpoints/resume.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/job_check.h"

namespace tandem {
namespace {

// A line a tensor: name, sizes.
std::string DescribeShapes(const std::vector<TensorInfo>& tensors) {
  return absl::StrJoin(tensors, "\n", [](std::string* out, const auto& each) {
    absl::StrAppend(out, each.name, "\t", absl::StrJoin(each.sizes, ","));
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
absl::StatusOr<std::vector<TensorInfo>> WholeModel(
    const std::vector<TensorInfo>& own, const RowParts& parts,
    Communicator& world) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          world.AllGatherString(DescribeShapes(own), [] {
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

// Weights, and a text for a person that says from how many files they come.
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

// A checkpoint with adapters is a start for the same ones, or, merged with
// them, for a model without.
absl::StatusOr<Source> CheckpointSource(
    const StoredCheckpoint& stored, const std::optional<LoraRecord>& adapters) {
  TANDEM_ASSIGN_OR_RETURN(const std::optional<LoraRecord> saved,
                          ReadLoraRecord(stored.progress.options));
  if (!saved) return Source{stored.model, "a checkpoint"};
  if (!adapters) {
    TANDEM_ASSIGN_OR_RETURN(StoredTensors merged,
                            MergedWeights(stored.model, *saved));
    return Source{std::move(merged), "a checkpoint, merged with its adapters"};
  }
  if (saved->rank == adapters->rank && saved->alpha == adapters->alpha) {
    return Source{stored.model, "a checkpoint with adapters"};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the checkpoint has adapters of --lora_rank=", saved->rank,
      " --lora_alpha=", saved->alpha, ", but this job has --lora_rank=",
      adapters->rank, " --lora_alpha=", adapters->alpha,
      ": give the same, or export it first, merged, for adapters of another "
      "kind"));
}

// A checkpoint's folder, or weights of any maker.
absl::StatusOr<Source> OpenSource(const std::string& path,
                                  const std::optional<LoraRecord>& adapters) {
  if (const auto checkpoint = CheckpointFolderAt(path)) {
    TANDEM_ASSIGN_OR_RETURN(const StoredCheckpoint stored,
                            OpenCheckpointAt(*checkpoint));
    return CheckpointSource(stored, adapters);
  }
  TANDEM_ASSIGN_OR_RETURN(const StoredWeights weights, OpenWeights(path));
  const size_t files = weights.files.size();
  return Source{WithoutOptimizer(weights),
                absl::StrCat(files, files == 1 ? " file" : " files")};
}

bool HasAdapters(const StoredTensors& tensors) {
  return absl::c_any_of(tensors, [](const StoredTensor& each) {
    return IsLoraParameter(each.info.name);
  });
}

// What is not loaded keeps its values, in each of its parts.
StoredTensors WithMissing(const LoadPlan& plan, const RowParts& parts) {
  StoredTensors rows = DivideRows(plan.tensors, parts);
  for (const NameList* kept : {&plan.missing, &plan.reshaped}) {
    for (const std::string& name : *kept) {
      rows.Keep(name);
      for (const auto& [rows_name, part] : parts) {
        if (part.weight == name) rows.Keep(rows_name);
      }
    }
  }
  return rows;
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

struct InitialWeights {
  LoadPlan plan;
  std::string text;       // for a person
  bool has_ties = false;  // the model has tied weights
};

absl::StatusOr<InitialWeights> FindInitialWeights(
    const Job& job, const std::vector<TensorInfo>& model) {
  const TrainOptions& options = job.options;
  TANDEM_ASSIGN_OR_RETURN(const Source source,
                          OpenSource(options.init_from, job.adapters));
  const NameRules rules = job.transformer.has_value()
                              ? StateNameRules(job.transformer->model)
                              : NameRules();
  LoadAllowances allowances = {options.allow_missing, options.allow_unexpected};
  const bool begins_adapters = job.adapters && !HasAdapters(source.tensors);
  if (begins_adapters) {
    for (const char* initial : {"*lora_A.weight", "*lora_B.weight"}) {
      allowances.missing.push_back(initial);
    }
  }
  InitialWeights found;
  found.has_ties = !rules.tied.empty();
  TANDEM_ASSIGN_OR_RETURN(
      found.plan, PlanLoading(source.tensors, model, rules, allowances));
  LoadPlan described = found.plan;
  described.missing.erase(
      std::remove_if(described.missing.begin(), described.missing.end(),
                     IsLoraParameter),
      described.missing.end());
  found.text = absl::StrCat("initial weights from ", options.init_from, " (",
                            source.text, "): ", Describe(described));
  if (begins_adapters) {
    absl::StrAppend(&found.text, "; ",
                    found.plan.missing.size() - described.missing.size(),
                    " of adapters begin anew");
  }
  if (job.transformer.has_value() && !job.transformer->note.empty()) {
    absl::StrAppend(&found.text, "; ", job.transformer->note);
  }
  return found;
}

absl::StatusOr<std::string> Load(Job& job) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<TensorInfo> own,
                          job.strategy->WholeTensors());
  TANDEM_ASSIGN_OR_RETURN(const std::vector<TensorInfo> model,
                          WholeModel(own, job.row_parts, *job.world));
  TANDEM_ASSIGN_OR_RETURN(InitialWeights found, FindInitialWeights(job, model));
  if (found.has_ties) {
    TANDEM_RETURN_IF_ERROR(CheckTiedTogether(found.plan, *job.world));
  }
  TANDEM_RETURN_IF_ERROR(
      job.strategy->LoadModelState(WithMissing(found.plan, job.row_parts)));
  return std::move(found.text);
}

// Loads the weights of --init_from (a folder of Hugging Face's libraries, a
// file, or a checkpoint, whose model alone counts) into the job's model. Each
// rank reads what it has a part of. What was loaded and what was not, for a
// person. Errors name the path; nothing is changed then. Collective.
absl::StatusOr<std::string> LoadInitialWeights(Job& job) {
  auto loaded = Load(job);
  if (loaded.ok()) return loaded;
  return Annotate(loaded.status(),
                  absl::StrCat("--init_from=", job.options.init_from));
}

}  // namespace

absl::StatusOr<std::string> PlanInitialWeights(
    const Job& job, const std::vector<TensorInfo>& model) {
  auto found = FindInitialWeights(job, model);
  if (found.ok()) return std::move(found->text);
  return Annotate(found.status(),
                  absl::StrCat("--init_from=", job.options.init_from));
}

void RemoveLeftovers(const Job& job, RunReport& report) {
  const std::string& folder = job.options.save_dir;
  if (!job.is_rank_zero() || folder.empty()) return;
  for (const std::string& name : RemoveIncompleteCheckpoints(folder, job.id)) {
    report.Say(absl::StrCat("removed ", folder, "/", name,
                            ", a save that was never finished"));
  }
}

namespace {

// Loads the checkpoint or the weights; nothing where the job takes over another
// rank's state.
absl::StatusOr<Resumed> LoadStart(Job& job, RunReport& report) {
  Resumed resumed;
  if (job.takes_over()) return resumed;
  const LongTask::Options told = LongTask::SpeaksIf(job.is_rank_zero());
  if (!job.options.resume.empty()) {
    const LongTask loading("loading the checkpoint", told);
    TANDEM_ASSIGN_OR_RETURN(resumed, ResumeJob(job));
    report.Say(resumed.lines);
  }
  if (!resumed.position.has_value() && !job.options.init_from.empty()) {
    const LongTask loading(
        absl::StrCat("loading weights from ", job.options.init_from), told);
    TANDEM_ASSIGN_OR_RETURN(const std::string loaded, LoadInitialWeights(job));
    report.Say(loaded);
  }
  return resumed;
}

// The one that a checkpoint or another rank has, or a new one. Collective.
absl::Status AgreeOnId(Job& job, const std::string& resumed) {
  std::string mine = resumed.empty() ? job.id : resumed;
  if (mine.empty() && job.is_rank_zero()) {
    TANDEM_ASSIGN_OR_RETURN(const std::string bytes, RandomBytes(8));
    mine = absl::BytesToHexString(bytes);
  }
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      job.world->AllGatherString(mine, [] { return "which job this is"; }));
  const auto known =
      std::find_if(all.begin() + (job.takes_over() ? 1 : 0), all.end(),
                   [](const std::string& each) { return !each.empty(); });
  job.id = known == all.end() ? all.front() : *known;
  return absl::OkStatus();
}

// Id of the job that saved it; "": nobody knows.
std::string SavingJob(const std::string& checkpoint) {
  const auto manifest = ReadManifest(checkpoint);
  if (!manifest.ok()) return "";
  const auto progress = ProgressOfCheckpoint(checkpoint, manifest->metadata);
  return progress.ok() ? progress->job : "";
}

}  // namespace

absl::Status CheckLaterCheckpoints(const Job& job, const JobStart& start,
                                   std::string* said) {
  const TrainOptions& options = job.options;
  const std::vector<StepFolder> all = CompleteCheckpoints(options.save_dir);
  const int64_t step = start.stand.position.step;
  if (all.empty() || all.front().step <= step) return absl::OkStatus();
  const std::string& newest = all.front().path;
  const std::string saved_by = SavingJob(newest);
  if (!start.resumed || (!saved_by.empty() && saved_by != job.id)) {
    return MixedJobsError(options.save_dir, newest, step);
  }
  *said = absl::StrCat(
      "note: ", options.save_dir, " has later checkpoints of this job, up to ",
      newest, ", which --resume=auto would take before those from here on");
  return absl::OkStatus();
}

namespace {

absl::Status LookForLaterCheckpoints(const Job& job, const JobStart& start,
                                     RunReport& report) {
  if (job.takes_over() || job.options.eval_only ||
      job.options.save_dir.empty()) {
    return absl::OkStatus();
  }
  std::string said;
  const absl::Status found = job.is_rank_zero()
                                 ? CheckLaterCheckpoints(job, start, &said)
                                 : absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(
      AgreeOnSuccess(found, "found no other job's checkpoints", *job.world));
  if (!said.empty()) report.Say(said);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<JobStart> FindStart(Job& job, RunReport& report,
                                   Replacement* replacement) {
  JobStart start;
  TANDEM_ASSIGN_OR_RETURN(const Resumed resumed, LoadStart(job, report));
  start.resumed = resumed.position;
  start.checkpoint = resumed.path;
  start.stand.position = resumed.position.value_or(TrainPosition());
  TANDEM_RETURN_IF_ERROR(AgreeOnId(job, resumed.job));
  TANDEM_RETURN_IF_ERROR(LookForLaterCheckpoints(job, start, report));
  if (replacement != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> lines,
                            replacement->Begin(job, &start.stand));
    report.Say(lines);
  }
  report.report().ShowStart({job.id, start.stand.position.step, resumed.path,
                             !job.options.eval_only});
  return start;
}

}  // namespace tandem
