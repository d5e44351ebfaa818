#include "tools/report/settings_tables.h"

#include <algorithm>
#include <map>
#include <set>

#include "tools/trainer/settings/options.h"
#include "tools/trainer/settings/setting.h"

namespace tandem {
namespace {

const std::map<std::string, std::string>& UsualSettings() {
  static const auto* const usual = [] {
    auto* const texts = new std::map<std::string, std::string>;
    for (const auto& [name, value] : Describe(TrainOptions())) {
      texts->emplace(name, ToText(value));
    }
    return texts;
  }();
  return *usual;
}

bool IsUsual(const std::string& name, const FieldValue& value) {
  // 0: not known.
  if (name == "flops_per_sample" && FieldText(value) == "0") return true;
  const auto usual = UsualSettings().find(name);
  return usual != UsualSettings().end() && usual->second == FieldText(value);
}

}  // namespace

EventFields WithoutPosition(const EventFields& fields) {
  EventFields others;
  for (const auto& [name, value] : fields) {
    if (name != "event" && name != "time") others.emplace_back(name, value);
  }
  return others;
}

EventFields UnusualSettings(const EventFields& settings) {
  EventFields unusual;
  for (const auto& [name, value] : WithoutPosition(settings)) {
    if (!IsUsual(name, value)) unusual.emplace_back(name, value);
  }
  return unusual;
}

std::vector<SettingRow> DifferingSettings(const std::vector<RunLog>& runs) {
  std::vector<SettingRow> rows;
  std::set<std::string> seen;
  for (const RunLog& first : runs) {
    for (const auto& [name, unused] : WithoutPosition(first.settings)) {
      if (!seen.insert(name).second) continue;
      SettingRow row = {name, {}};
      for (const RunLog& run : runs) {
        const FieldValue* const value = FindField(run.settings, name);
        row.values.push_back(value == nullptr ? "-" : FieldText(*value));
      }
      const bool differs =
          std::any_of(row.values.begin(), row.values.end(),
                      [&](const auto& text) { return text != row.values[0]; });
      if (differs) rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace tandem
