#include "tools/bench/case/case.h"

#include <algorithm>
#include <sstream>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/edit_distance.h"

namespace tandem {
namespace {

constexpr char kReproducible[] = "reproducible";

auto Tied(const Setting& setting) {
  return std::tie(setting.schedule, setting.chunks, setting.microbatches,
                  setting.cut, setting.together, setting.reproducible,
                  setting.recipe);
}

// What may follow the first four words.
bool ParseFurther(const std::string& word, Setting& setting) {
  if (word == kReproducible) {
    setting.reproducible = true;
  } else if (word == "static_graph" || word == "find_unused" || word == "ddp" ||
             word == kFsdpRecipe || SharesLayers(word)) {
    setting.recipe = word;
  } else {
    return absl::SimpleAtoi(word, &setting.together) && setting.together > 0;
  }
  return true;
}

}  // namespace

bool SharesLayers(const std::string& recipe) {
  return recipe == kTensorRecipe || recipe == kTensorSequenceRecipe;
}

bool Setting::operator==(const Setting& other) const {
  return Tied(*this) == Tied(other);
}

std::string ToString(const Setting& setting) {
  std::string text = absl::StrCat(setting.schedule, " ", setting.chunks, " ",
                                  setting.microbatches, " ", setting.cut);
  if (setting.together != 1) absl::StrAppend(&text, " ", setting.together);
  if (setting.reproducible) absl::StrAppend(&text, " ", kReproducible);
  if (!setting.recipe.empty()) absl::StrAppend(&text, " ", setting.recipe);
  return text;
}

absl::StatusOr<Setting> ParseSetting(const std::string& text) {
  std::istringstream words(text);
  Setting setting;
  words >> setting.schedule >> setting.chunks >> setting.microbatches >>
      setting.cut;
  bool good = !words.fail() && setting.chunks > 0 && setting.microbatches > 0 &&
              (setting.cut == "uniform" || setting.cut == "time");
  for (std::string word; good && words >> word;) {
    good = ParseFurther(word, setting);
  }
  if (good) return setting;
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text,
      "': expected SCHEDULE CHUNKS MICROBATCHES uniform|time "
      "[TOGETHER] [reproducible] [static_graph|find_unused|ddp|fsdp]"));
}

std::vector<Setting> SettingChoices(const std::string& schedule,
                                    const std::vector<int>& chunks,
                                    const std::vector<int>& counts,
                                    int64_t samples) {
  std::vector<Setting> settings;
  for (int chunk : chunks) {
    for (int microbatches : counts) {
      if (microbatches > samples) continue;
      for (const char* cut : {"uniform", "time"}) {
        settings.push_back({schedule, chunk, microbatches, cut});
      }
    }
  }
  return settings;
}

std::vector<Setting> WithWeightsTogether(std::vector<Setting> settings) {
  for (size_t i = 0, count = settings.size(); i < count; ++i) {
    if (settings[i].microbatches == 1) continue;
    settings.push_back(settings[i]);
    settings.back().together = settings[i].microbatches;
  }
  return settings;
}

std::vector<Setting> WithRecipe(std::vector<Setting> settings,
                                const std::string& recipe) {
  for (Setting& each : settings) each.recipe = recipe;
  return settings;
}

namespace {

bool NamesCase(const std::string& name, const Case& each) {
  return name == each.name || name == each.workload.model;
}

absl::Status UnknownCase(const std::string& name,
                         const std::vector<Case>& all) {
  std::vector<std::string> names;
  for (const Case& each : all) names.push_back(each.name);
  const bool has_variants = all.front().name != all.front().workload.model;
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown case '", name, "': known are ", NamesNear(name, names),
      has_variants ? ", and the models alone" : ""));
}

}  // namespace

absl::StatusOr<std::vector<Case>> CasesNamed(
    const std::vector<Case>& all, const std::vector<std::string>& names) {
  if (names.empty()) return all;
  for (const std::string& name : names) {
    const bool known =
        std::any_of(all.begin(), all.end(),
                    [&](const Case& each) { return NamesCase(name, each); });
    if (!known) return UnknownCase(name, all);
  }
  std::vector<Case> chosen;
  for (const Case& each : all) {
    const bool wanted = std::any_of(
        names.begin(), names.end(),
        [&](const std::string& name) { return NamesCase(name, each); });
    if (wanted) chosen.push_back(each);
  }
  return chosen;
}

absl::StatusOr<std::vector<Case>> InDtypes(
    const std::vector<Case>& cases, const std::vector<std::string>& dtypes) {
  for (const std::string& dtype : dtypes) {
    if (dtype == "fp32" || dtype == "bf16") continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--dtypes: unknown '", dtype, "'; known: fp32, bf16"));
  }
  std::vector<Case> all;
  for (const std::vector<Case>& model : ByModel(cases)) {
    for (const std::string& dtype : dtypes) {
      for (Case each : model) {
        each.workload.dtype = dtype;
        if (dtype != "fp32") absl::StrAppend(&each.name, ":", dtype);
        all.push_back(std::move(each));
      }
    }
  }
  return all;
}

std::vector<std::vector<Case>> ByModel(const std::vector<Case>& cases) {
  const auto alike = [](const Workload& a, const Workload& b) {
    return a.model == b.model && a.dtype == b.dtype;
  };
  std::vector<std::vector<Case>> models;
  for (const Case& each : cases) {
    if (models.empty() ||
        !alike(models.back().front().workload, each.workload)) {
      models.emplace_back();
    }
    models.back().push_back(each);
  }
  return models;
}

}  // namespace tandem
