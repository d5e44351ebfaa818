// Other names of flags: those that train had, and those of other trainers.

#ifndef TANDEM_TOOLS_TRAINER_SETTINGS_OTHER_NAMES_H_
#define TANDEM_TOOLS_TRAINER_SETTINGS_OTHER_NAMES_H_

#include <vector>

#include "core/program/flag_guide.h"

namespace tandem {

// No name of a flag, each with what to write instead.
std::vector<OtherFlagName> OtherNames();

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SETTINGS_OTHER_NAMES_H_
