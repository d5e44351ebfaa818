#include "parallel/step/mesh_model.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"

namespace tandem {

std::vector<TrainedStage*> MeshModel::AllStages() const {
  std::vector<TrainedStage*> all;
  for (const auto& stage : stages) {
    if (stage != nullptr) all.push_back(stage.get());
  }
  return all;
}

std::vector<int> MeshModel::OwnStages() const {
  std::vector<int> own;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i] != nullptr) own.push_back(static_cast<int>(i));
  }
  return own;
}

absl::Status MeshModel::OnStages(
    absl::FunctionRef<absl::Status(int stage)> work) const {
  return executor->OnDevices([&](int device) {
    for (int i : options.schedule.stages_of[static_cast<size_t>(device)]) {
      TANDEM_RETURN_IF_ERROR(work(i));
    }
    return absl::OkStatus();
  });
}

size_t MeshModel::LocalDevice(int device) const {
  return static_cast<size_t>(device) % options.devices.size();
}

void MeshModel::SetTraining(bool on) const {
  for (const TrainingModes& each : modes) each.Set(on);
}

absl::Status MeshModel::Agree(const absl::Status& mine) const {
  Communicator* const world = groups.world();
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

}  // namespace tandem
