#include "tools/bench/hybrid/cases.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

struct NamedLayout {
  const char* name;
  Layout layout;
};

constexpr NamedLayout kLayouts[] = {{"1x1", {1, 1, 1}},
                                    {"2x1", {2, 1, 1}},
                                    {"1x2", {1, 1, 2}},
                                    {"2x2", {2, 1, 2}},
                                    {"2x2_ranks", {2, 2, 1}}};

void Append(std::vector<Setting> more, std::vector<Setting>* settings) {
  settings->insert(settings->end(), more.begin(), more.end());
}

// Without a pipeline there is nothing to cut, and one schedule does.
std::vector<Setting> WithoutStages(int64_t samples) {
  std::vector<Setting> settings;
  for (int microbatches : {1, 2, 4}) {
    if (microbatches <= samples) {
      settings.push_back({"1f1b", 1, microbatches, "uniform"});
    }
  }
  return settings;
}

std::vector<Setting> Ours(const Layout& layout, int64_t samples) {
  if (layout.devices_of_replica() == 1) return WithoutStages(samples);
  std::vector<Setting> settings;
  for (const auto& [schedule, chunks] : {std::pair<const char*, int>{"1f1b", 1},
                                         {"interleaved_1f1b", 2},
                                         {"zb_h1", 1},
                                         {"zb_v", 2}}) {
    Append(SettingsOf(schedule, {chunks}, {2, 4}, samples), &settings);
  }
  return WithWeightsTogether(std::move(settings));
}

std::vector<Setting> Peers(const Layout& layout, int64_t samples) {
  const bool pipelined = layout.devices_of_replica() > 1;
  std::vector<Setting> settings;
  std::vector<Setting> split;
  if (pipelined) {
    Append(SettingsOf("1f1b", {1}, {2, 4}, samples), &settings);
    Append(SettingsOf("interleaved_1f1b", {2}, {2, 4}, samples), &settings);
    Append(SettingsOf("zero_bubble", {1, 2}, {2, 4}, samples), &split);
  } else {
    settings = WithoutStages(samples);
  }
  if (layout.replicas == 1) {
    Append(split, &settings);
    return settings;
  }
  std::vector<Setting> all = WithRecipe(settings, "ddp");
  Append(WithRecipe(settings, "flat"), &all);
  Append(WithRecipe(split, "flat"), &all);
  return all;
}

}  // namespace

std::vector<Case> CasesInLayouts(const Workload& workload) {
  std::vector<Case> cases;
  for (const auto& [name, layout] : kLayouts) {
    const int64_t samples = workload.batch_size / layout.replicas;
    cases.push_back({absl::StrCat(workload.model, "/", name), workload, layout,
                     Ours(layout, samples), Peers(layout, samples)});
  }
  return cases;
}

std::vector<Case> HybridCases() {
  std::vector<Case> cases;
  for (const Workload& workload :
       {WithSgd(*WorkloadNamed("mlp_deep"), 3, 4),
        WithSgd(*WorkloadNamed("gpt_tiny"), 0.5, 3),
        WithSgd(*WorkloadNamed("resnet18"), 0.001, 2)}) {
    for (Case& each : CasesInLayouts(workload)) {
      cases.push_back(std::move(each));
    }
  }
  return cases;
}

}  // namespace tandem
