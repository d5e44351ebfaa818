#include "tools/trainer/checkpoints/saver.h"

#include <glog/logging.h>

#include <chrono>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/save.h"
#include "core/checkpoint/folder/step_folders.h"
#include "parallel/strategy/strategy.h"
#include "tools/trainer/checkpoints/job_progress.h"

namespace tandem {
namespace {

double MillisecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now() - start)
      .count();
}

std::map<std::string, int64_t> ParallelDegrees(const Mesh& mesh) {
  std::map<std::string, int64_t> degrees;
  for (const MeshAxis& axis : mesh.axes()) degrees[axis.name] = axis.degree;
  return degrees;
}

std::chrono::milliseconds GatherTimeout(const TrainOptions& options) {
  return std::chrono::milliseconds(
      static_cast<int64_t>(options.timeout * 1000));
}

// The tensors of a part that are neither trained parameters nor optimizer
// state.
std::set<std::string> NotTrained(const StatePart& part,
                                 const Strategy& strategy) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : part.tensors) {
    if (!IsOptimizerStateName(name)) names.insert(name);
  }
  for (const auto& [name, parameter] : strategy.Parameters()) {
    if (parameter.requires_grad()) names.erase(name);
  }
  // A parameter server has parts of parameters.
  for (const auto& [name, group] : strategy.OptimizerGroups()) {
    names.erase(name);
  }
  return names;
}

// `last`: the checkpoint before; empty: this process has saved none.
absl::Status Diverged(const absl::Status& what,
                      const SafetensorsMetadata& metadata,
                      const std::string& last) {
  return absl::OutOfRangeError(absl::StrCat(
      "after step ", metadata.at("tandem.step"), " ", what.message(),
      ": training has diverged, and no checkpoint is written of it; go on ",
      last.empty() ? "from the last one" : absl::StrCat("from ", last),
      " with a smaller --learning_rate, or --clip_grad_norm"));
}

}  // namespace

Saver::Saver(const Job& job, int64_t step)
    : job_(&job),
      group_(job.strategy->SavingGroup(job.world.get())),
      saved_step_(step) {
  if (group_ != nullptr && job.options.async_save) {
    gather_.emplace(*group_, "checkpoint", GatherTimeout(job.options));
  }
}

Saver::~Saver() {
  if (gather_.has_value()) gather_->Stop();
  if (writing_.valid()) writing_.wait();
}

FolderSave Saver::Describe(const TrainPosition& position, Communicator& group) {
  FolderSave save;
  save.path =
      absl::StrCat(job_->options.save_dir, "/", StepFolderName(position.step));
  save.rank = group.rank();
  save.job = job_->id;
  save.mesh = ParallelDegrees(job_->mesh);
  save.metadata = CheckpointMetadata(CurrentProgress(*job_, position));
  if (gather_.has_value()) {
    save.gather = [this](const std::string& mine) {
      return gather_->Gather(mine);
    };
  } else if (group.size() > 1) {
    save.gather = [&group](const std::string& mine) {
      return group.AllGatherString(mine, [] { return "saving a checkpoint"; });
    };
  }
  return save;
}

// The path of the checkpoint.
absl::StatusOr<std::string> Saver::Write(const FolderSave& save,
                                         const StatePart& part) const {
  absl::StatusOr<std::string> path = SaveFolder(save, part);
  if (absl::IsOutOfRange(path.status())) {
    return Diverged(path.status(), save.metadata, path_);
  }
  TANDEM_RETURN_IF_ERROR(Annotate(path.status(), save.path));
  if (save.rank != 0) return path;
  const TrainOptions& options = job_->options;
  const absl::Status removed = RemoveOld(
      options.save_dir, {options.keep_last, options.keep_every}, *path);
  LOG_IF(WARNING, !removed.ok()) << "an old checkpoint stays: " << removed;
  return path;
}

absl::Status Saver::WriteBehind(const FolderSave& save, const StatePart& part) {
  TANDEM_ASSIGN_OR_RETURN(StatePart copy, copy_.Take(part));
  gather_->BeginRound();
  writing_ = std::async(
      std::launch::async,
      [this, save, copy = std::move(copy)] { return Write(save, copy); });
  return absl::OkStatus();
}

absl::Status Saver::WriteNow(const FolderSave& save, const StatePart& part) {
  TANDEM_ASSIGN_OR_RETURN(path_, Write(save, part));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Saver::Save(
    const TrainPosition& position) {
  std::vector<std::string> lines;
  if (job_->options.save_dir.empty() || saved_step_ == position.step) {
    return lines;
  }
  TANDEM_ASSIGN_OR_RETURN(lines, Finish());
  const Clock::time_point start = Clock::now();
  TANDEM_RETURN_IF_ERROR(job_->strategy->Synchronise());
  TANDEM_ASSIGN_OR_RETURN(const StatePart part, job_->strategy->PartToSave());
  saved_step_ = position.step;
  if (group_ == nullptr) return lines;
  const JoinedState whole = JoinRows(part, job_->row_parts);
  FolderSave save = Describe(position, *group_);
  save.tensor_of_slice = whole.tensor_of_slice;
  save.may_be_infinite = NotTrained(part, *job_->strategy);
  TANDEM_RETURN_IF_ERROR(gather_.has_value() ? WriteBehind(save, whole.part)
                                             : WriteNow(save, whole.part));
  const double stalled_ms = MillisecondsSince(start);
  ++times_.saves;
  times_.stalled_ms += stalled_ms;
  if (gather_.has_value()) {
    lines.push_back(absl::StrFormat(
        "saving %s behind: the loop stood still for %.1f ms, to copy %.1f MiB",
        save.path, stalled_ms, static_cast<double>(copy_.bytes()) / (1 << 20)));
  }
  return lines;
}

absl::StatusOr<std::vector<std::string>> Saver::Finish() {
  if (!writing_.valid()) return std::vector<std::string>();
  const Clock::time_point start = Clock::now();
  TANDEM_ASSIGN_OR_RETURN(path_, writing_.get());
  const double waited_ms = MillisecondsSince(start);
  times_.stalled_ms += waited_ms;
  return std::vector<std::string>{absl::StrFormat(
      "saved %s; the loop waited for it for %.1f ms", path_, waited_ms)};
}

}  // namespace tandem
