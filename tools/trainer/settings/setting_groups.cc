#include "tools/trainer/settings/setting_groups.h"

#include <string>
#include <type_traits>
#include <vector>

#include "core/program/flag_guide.h"
#include "tools/trainer/settings/options.h"
#include "tools/trainer/settings/setting.h"

namespace tandem {
namespace {

template <typename Range>
std::vector<std::string> ValuesIn(const Range&) {
  return {};
}
std::vector<std::string> ValuesIn(const setting::OneOf& range) {
  return range.known();
}

template <typename Kind, typename Range>
GuidedFlag Row(const char* name, bool is_usual, const Range& range) {
  return {name, is_usual, ValuesIn(range),
          std::is_same_v<Kind, setting::Path> ||
              std::is_same_v<Kind, setting::PathOrAuto>};
}

// A group for each line of GROUP.
std::vector<FlagGroup> Sections() {
  std::vector<FlagGroup> sections;
#define GROUP(name) sections.push_back({name, {}});
#define ADD_ROW(kind, name, is_usual, range) \
  sections.back().flags.push_back(           \
      Row<setting::kind>(#name, is_usual, setting::range));
#define SETTING(kind, name, value, range, help) \
  ADD_ROW(kind, name, false, range)
#define USUAL_SETTING(kind, name, value, range, help) \
  ADD_ROW(kind, name, true, range)
#include "tools/trainer/settings/all_settings.def"
#undef ADD_ROW
  return sections;
}

}  // namespace

std::vector<FlagGroup> SettingGroups() {
  std::vector<FlagGroup> groups;
  for (const FlagGroup& each : Sections()) AddGroup(each, &groups);
  return groups;
}

}  // namespace tandem
