// Error file: why a rank failed, where torchrun looks for it.

#ifndef TANDEM_CORE_RUN_ERROR_FILE_H_
#define TANDEM_CORE_RUN_ERROR_FILE_H_

#include "absl/status/status.h"
#include "core/launch/launch.h"

namespace tandem {

// Writes `status` to the file that TORCHELASTIC_ERROR_FILE names, in the form
// of torch.distributed.elastic.multiprocessing.errors, which torchrun repeats
// as the job's root cause. Does nothing where the variable is not set, or the
// file is there: then something below has told more. A file that cannot be
// written is left out.
void WriteErrorFile(const Launch& launch, const absl::Status& status);

}  // namespace tandem

#endif  // TANDEM_CORE_RUN_ERROR_FILE_H_
