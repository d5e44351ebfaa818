// The Python whose PyTorch tandem is compared with.

#ifndef TANDEM_TOOLS_BENCH_PROCESS_PYTHON_H_
#define TANDEM_TOOLS_BENCH_PROCESS_PYTHON_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/base/environment.h"

namespace tandem {

// A Python that imports torch of the version that tandem is built with: `given`
// if it is not empty, else $TANDEM_PEER_PYTHON, else python3. A path, or a name
// that is found in PATH. NotFound, with what to do, if it does not.
absl::StatusOr<std::string> FindPython(const std::string& given,
                                       const Environment& environment);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PROCESS_PYTHON_H_
