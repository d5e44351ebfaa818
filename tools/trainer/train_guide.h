// Guide of the trainer's flags: their groups, the values that they take, and
// what to write instead of names that it does not have.

#ifndef TANDEM_TOOLS_TRAINER_TRAIN_GUIDE_H_
#define TANDEM_TOOLS_TRAINER_TRAIN_GUIDE_H_

#include <string>

#include "core/program/flag_guide.h"

namespace tandem {

// `usage`: what --help says above the flags. Call when models and data sets
// have been registered.
FlagGuide TrainGuide(const std::string& usage);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_TRAIN_GUIDE_H_
