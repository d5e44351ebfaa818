// Initial weights: those of a folder of Hugging Face's libraries, or of a file.

#ifndef TANDEM_TOOLS_TRAINER_INITIAL_WEIGHTS_H_
#define TANDEM_TOOLS_TRAINER_INITIAL_WEIGHTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/trainer/job/job.h"

namespace tandem {

// Loads the weights of --init_from into the job's model; of a checkpoint its
// model alone. Each rank reads what it has a part of. What was loaded and what
// was not, for a person. Errors name the path; nothing is changed then.
// Collective.
absl::StatusOr<std::string> LoadInitialWeights(Job& job);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_INITIAL_WEIGHTS_H_
