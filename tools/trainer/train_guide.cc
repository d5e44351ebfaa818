#include "tools/trainer/train_guide.h"

#include <string>
#include <vector>

#include "core/launch/flags.h"
#include "datasets/registry.h"
#include "models/registry.h"
#include "parallel/schedule/schedules.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/rehearsal/rehearsal_settings.h"
#include "tools/trainer/settings/comm_hook.h"
#include "tools/trainer/settings/other_names.h"
#include "tools/trainer/settings/setting_groups.h"

namespace tandem {
namespace {

// From what is trained to how it is started. A group that is not named here
// comes behind.
constexpr const char* kOrder[] = {"Model",
                                  "Data",
                                  "Images",
                                  "Steps and batches",
                                  "Evaluation",
                                  "Optimizer",
                                  "Learning rate",
                                  "LoRA",
                                  "Precision",
                                  "Layout",
                                  "Pipeline",
                                  "DDP",
                                  "Local SGD",
                                  "Parameter server",
                                  "Activation checkpointing",
                                  "Devices",
                                  "Communication",
                                  "Launch",
                                  "Checkpoints",
                                  "Output",
                                  "Safety",
                                  "Rehearsal"};

}  // namespace

FlagGuide TrainGuide(const std::string& usage) {
  std::vector<FlagGroup> groups;
  for (const char* name : kOrder) groups.push_back({name, {}});
  for (const FlagGroup& each : SettingGroups()) AddGroup(each, &groups);
  AddGroup(LaunchFlags(), &groups);
  AddGroup(RehearsalFlags(), &groups);
  SetValues("model", KnownModels(), &groups);
  SetValues("comm_hook", CommHookNames(), &groups);
  SetValues("dataset", DatasetNames(), &groups);
  SetValues("schedule", ScheduleNames(), &groups);
  SetValues("strategy", StrategyNames(), &groups);
  return {usage, groups, OtherNames()};
}

}  // namespace tandem
