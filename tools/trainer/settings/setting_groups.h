// Setting groups: the rows of the tables of settings as groups of flags.

#ifndef TANDEM_TOOLS_TRAINER_SETTINGS_SETTING_GROUPS_H_
#define TANDEM_TOOLS_TRAINER_SETTINGS_SETTING_GROUPS_H_

#include <vector>

#include "core/program/flag_guide.h"

namespace tandem {

// The groups that the tables' lines GROUP name, in the order in which they come
// there first; each with its rows in their order.
std::vector<FlagGroup> SettingGroups();

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SETTINGS_SETTING_GROUPS_H_
