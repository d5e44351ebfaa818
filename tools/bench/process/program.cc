#include "tools/bench/process/program.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/files/atomic_file.h"
#include "core/files/user_path.h"
#include "core/program/command_line.h"
#include "tools/bench/process/python.h"

namespace tandem {
namespace {

// As every program of tandem's (docs/training.md): what the user can mend in
// what they gave is refused.
constexpr int kFailed = 1;
constexpr int kRefused = 2;

// A temporary folder that goes with the object.
class ScratchFolder {
 public:
  // `name` is part of its path.
  explicit ScratchFolder(const std::string& name) {
    std::string pattern =
        (std::filesystem::temp_directory_path() / (name + ".XXXXXX")).string();
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  // Empty if it could not be made.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

absl::Status Run(
    const std::string& name, const std::string& usage, int argc, char** argv,
    absl::FunctionRef<absl::Status(const std::string& folder)> work) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> leftovers,
                          ParseCommandLine(argc, argv, usage));
  if (!leftovers.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", leftovers.front(), "' is no flag"));
  }
  const ScratchFolder scratch(name);
  if (scratch.path().empty()) {
    return absl::InternalError("cannot make a temporary folder");
  }
  return work(scratch.path());
}

}  // namespace

absl::Status CheckAtLeast(const std::string& flag, int value, int least) {
  if (value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, ": expected at least ", least));
}

absl::Status CheckAmong(const std::string& flag,
                        const std::vector<std::string>& values,
                        const std::vector<std::string>& known) {
  for (const std::string& value : values) {
    if (absl::c_linear_search(known, value)) continue;
    return absl::InvalidArgumentError(absl::StrCat("--", flag, ": '", value,
                                                   "': expected one of ",
                                                   absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> PythonOfFlag(std::string value) {
  if (value.find('/') != std::string::npos) value = UserPath(value);
  return FindPython(value, Environment::OfProcess());
}

absl::StatusOr<std::string> FolderFor(const std::string& name,
                                      const std::string& parent) {
  const std::string folder = absl::StrCat(parent, "/", name);
  std::error_code failed;
  std::filesystem::create_directory(folder, failed);
  if (!failed) return folder;
  return absl::InternalError(
      absl::StrCat("making ", folder, ": ", failed.message()));
}

absl::Status WriteJson(const std::string& path, const nlohmann::json& json) {
  if (path.empty()) return absl::OkStatus();
  return WriteOutputFile(UserPath(path), json.dump(2) + "\n");
}

int RunBenchProgram(
    const std::string& name, const std::string& usage, int argc, char** argv,
    absl::FunctionRef<absl::Status(const std::string& folder)> work) {
  const absl::Status status = Run(name, usage, argc, argv, work);
  if (status.ok()) return 0;
  absl::FPrintF(stderr, "%s: %s\n", name, status.message());
  const bool refused =
      absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status);
  return refused ? kRefused : kFailed;
}

}  // namespace tandem
