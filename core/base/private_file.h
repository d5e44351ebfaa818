// Private files: those of this user that nobody else may read or write.

#ifndef TANDEM_CORE_BASE_PRIVATE_FILE_H_
#define TANDEM_CORE_BASE_PRIVATE_FILE_H_

#include <sys/stat.h>

#include <string>

#include "absl/status/status.h"

namespace tandem {

// FailedPrecondition, of a message that begins with `name`, where the file is
// another user's, or where its group or others may do anything with it; `mend`
// is what to do then.
absl::Status CheckPrivate(const struct stat& file, const std::string& name,
                          const std::string& mend);

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_PRIVATE_FILE_H_
