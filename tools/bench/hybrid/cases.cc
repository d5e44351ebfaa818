#include "tools/bench/hybrid_case.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/bench/cases_among.h"

namespace tandem {
namespace {

struct NamedLayout {
  const char* name;
  BenchLayout layout;
};

constexpr NamedLayout kLayouts[] = {{"1x1", {1, 1, 1}},
                                    {"2x1", {2, 1, 1}},
                                    {"1x2", {1, 1, 2}},
                                    {"2x2", {2, 1, 2}},
                                    {"2x2_ranks", {2, 2, 1}}};

BenchCase Model(const std::string& name, double learning_rate,
                int64_t compared_steps) {
  BenchCase bench = PipelineCasesNamed({name})->front().bench;
  bench.learning_rate = learning_rate;
  bench.compared_steps = compared_steps;
  return bench;
}

void Append(std::vector<PipelineSetting> more,
            std::vector<PipelineSetting>* settings) {
  settings->insert(settings->end(), more.begin(), more.end());
}

// Without a pipeline there is nothing to cut, and one schedule does.
std::vector<PipelineSetting> WithoutStages(int64_t samples) {
  std::vector<PipelineSetting> settings;
  for (int microbatches : {1, 2, 4}) {
    if (microbatches <= samples) {
      settings.push_back({"1f1b", 1, microbatches, "uniform"});
    }
  }
  return settings;
}

std::vector<PipelineSetting> Ours(const BenchLayout& layout, int64_t samples) {
  if (layout.devices_of_replica() == 1) return WithoutStages(samples);
  std::vector<PipelineSetting> settings;
  for (const auto& [schedule, chunks] : {std::pair<const char*, int>{"1f1b", 1},
                                         {"interleaved_1f1b", 2},
                                         {"zb_h1", 1},
                                         {"zb_v", 2}}) {
    Append(SettingsOf(schedule, {chunks}, {2, 4}, samples), &settings);
  }
  return WithWeightsTogether(std::move(settings));
}

std::vector<PipelineSetting> WithRecipe(std::vector<PipelineSetting> settings,
                                        const std::string& recipe) {
  for (PipelineSetting& each : settings) each.recipe = recipe;
  return settings;
}

std::vector<PipelineSetting> Peers(const BenchLayout& layout, int64_t samples) {
  const bool pipelined = layout.devices_of_replica() > 1;
  std::vector<PipelineSetting> settings;
  std::vector<PipelineSetting> split;
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
  std::vector<PipelineSetting> all = WithRecipe(settings, "ddp");
  Append(WithRecipe(settings, "flat"), &all);
  Append(WithRecipe(split, "flat"), &all);
  return all;
}

std::vector<HybridCase> MakeCases() {
  std::vector<HybridCase> cases;
  for (const BenchCase& bench :
       {Model("mlp_deep", 3, 4), Model("gpt_tiny", 0.5, 3),
        Model("resnet18", 0.001, 2)}) {
    for (const auto& [name, layout] : kLayouts) {
      const int64_t samples = bench.batch_size / layout.replicas;
      HybridCase made;
      made.name = absl::StrCat(bench.name, "/", name);
      made.bench = bench;
      made.layout = layout;
      made.ours = Ours(layout, samples);
      made.peers = Peers(layout, samples);
      cases.push_back(std::move(made));
    }
  }
  return cases;
}

}  // namespace

const std::vector<HybridCase>& HybridCases() {
  static const auto* const cases = new std::vector<HybridCase>(MakeCases());
  return *cases;
}

absl::StatusOr<std::vector<HybridCase>> HybridCasesNamed(
    const std::vector<std::string>& names) {
  return CasesAmong(HybridCases(), names);
}

}  // namespace tandem
