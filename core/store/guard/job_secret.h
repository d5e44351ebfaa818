// Job secret: what this process and the others of its job know, and nobody
// else.

#ifndef TANDEM_CORE_STORE_GUARD_JOB_SECRET_H_
#define TANDEM_CORE_STORE_GUARD_JOB_SECRET_H_

#include <string>

namespace tandem {

// A process is of one job, so it has one secret: from here on it serves
// TCPStores to those alone that prove that they know it, and connects to none
// whose server does not (core/store/store.h). Empty: none, as at the start.
//
// Both are thread-safe.
void SetJobSecret(const std::string& secret);
std::string JobSecret();

}  // namespace tandem

#endif  // TANDEM_CORE_STORE_GUARD_JOB_SECRET_H_
