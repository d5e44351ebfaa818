#include "tools/bench/process/runfile.h"

#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "tools/cpp/runfiles/runfiles.h"

namespace tandem {

absl::StatusOr<std::string> Runfile(const std::string& path) {
  using bazel::tools::cpp::runfiles::Runfiles;
  namespace fs = std::filesystem;
  std::error_code ignored;
  const std::string program =
      fs::read_symlink("/proc/self/exe", ignored).string();
  std::string error;
  const std::unique_ptr<Runfiles> runfiles(Runfiles::Create(program, &error));
  if (runfiles != nullptr) {
    const std::string found = runfiles->Rlocation("tandem/" + path);
    if (fs::exists(found, ignored)) return found;
  }
  return absl::NotFoundError(absl::StrCat(
      path,
      " is not among the program's runfiles: start it by `bazel run "
      "//tools:bench`"));
}

}  // namespace tandem
