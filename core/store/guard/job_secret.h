// Job secret: what this process and the others of its job know, and nobody
// else.

#ifndef TANDEM_CORE_STORE_GUARD_JOB_SECRET_H_
#define TANDEM_CORE_STORE_GUARD_JOB_SECRET_H_

#include <sys/stat.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/owned_fd.h"

namespace tandem {

// Checks that a file is private: this user's, and open to nobody else.
// FailedPrecondition, with a message that begins with `name`, where it is
// another user's, or where its group or others may do anything with it; `mend`
// is what to do then.
absl::Status CheckPrivate(const struct stat& file, const std::string& name,
                          const std::string& mend);

// A process is of one job, so it has one secret: from here on it serves
// TCPStores to those alone that prove that they know it, and connects to none
// whose server does not (core/store/store.h). Empty: none, as at the start.
//
// Both are thread-safe.
void SetJobSecret(const std::string& secret);
std::string JobSecret();

// Secret file: a job's secret, in a file that its user alone can read.

constexpr size_t kLeastSecretBytes = 16;
constexpr size_t kMostSecretBytes = 4096;

// What the file holds, without a newline at its end. The file that is open is
// the one that is looked at. Errors name the path and say what to do:
// FailedPrecondition where its group or others may do anything with it, or it
// is another user's, or cannot be opened; InvalidArgument for what is no
// regular file, too short or too long; else those of the file system.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path);

// A new random secret in a file that is in no folder and goes with its
// descriptor, closed on exec. PathOfDescriptor is how other processes of this
// user read it meanwhile.
absl::StatusOr<OwnedFd> NewSecretFile();

// "/proc/4711/fd/5": readable by this user alone.
std::string PathOfDescriptor(int fd);

}  // namespace tandem

#endif  // TANDEM_CORE_STORE_GUARD_JOB_SECRET_H_
