// Benchmark programs: checks of their flags, files, beginning and end.
//
// The Python whose PyTorch tandem is compared with.

#ifndef TANDEM_TOOLS_BENCH_PROCESS_PROGRAM_H_
#define TANDEM_TOOLS_BENCH_PROCESS_PROGRAM_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/environment.h"

namespace tandem {

// A Python that imports torch of the version that tandem is built with: `given`
// if it is not empty, else $TANDEM_PEER_PYTHON, else python3. A path, or a name
// that is found in PATH. NotFound, with what to do, if it does not.
absl::StatusOr<std::string> FindPython(const std::string& given,
                                       const Environment& environment);

// InvalidArgument, with the flag's name, for a value below `least`.
absl::Status CheckAtLeast(const std::string& flag, int value, int least);

// InvalidArgument, with the flag's name, for a value that is not among `known`.
absl::Status CheckAmong(const std::string& flag,
                        const std::vector<std::string>& values,
                        const std::vector<std::string>& known);

// What --python=VALUE means: a path from where the user stands, a name, or
// nothing (FindPython).
absl::StatusOr<std::string> PythonOfFlag(std::string value);

// Makes the folder `name` in `parent`: a case's files are its own, since ranks
// that meet through a file want a new one. A folder that is there will do.
absl::StatusOr<std::string> FolderFor(const std::string& name,
                                      const std::string& parent);

// What --json=PATH asks for, from where the user stands; nothing for an empty
// path.
absl::Status WriteJson(const std::string& path, const nlohmann::json& json);

// The program `name`: parses the command line, where all must be flags, and
// runs `work`, with a scratch folder that goes when it is done, or when Ctrl-C,
// SIGTERM or SIGHUP ends the process. Call it first in main. Gives the exit
// code, and says what went wrong (core/program/exit_code.h).
int RunBenchProgram(
    const std::string& name, const std::string& usage, int argc, char** argv,
    absl::FunctionRef<absl::Status(const std::string& folder)> work);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PROCESS_PROGRAM_H_
