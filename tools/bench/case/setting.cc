#include "tools/bench/case/setting.h"

#include <sstream>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

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
  } else if (word == "static_graph" || word == "find_unused" || word == "ddp") {
    setting.recipe = word;
  } else {
    return absl::SimpleAtoi(word, &setting.together) && setting.together > 0;
  }
  return true;
}

}  // namespace

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
  return absl::InvalidArgumentError(
      absl::StrCat("'", text,
                   "': expected SCHEDULE CHUNKS MICROBATCHES uniform|time "
                   "[TOGETHER] [reproducible] [static_graph|find_unused|ddp]"));
}

std::vector<Setting> SettingsOf(const std::string& schedule,
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

}  // namespace tandem
