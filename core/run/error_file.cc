#include "core/run/error_file.h"

#include <sys/stat.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/files/atomic_file.h"

namespace tandem {
namespace {

// Of the newest release: torchrun takes the failure with the lowest timestamp
// as the root cause, and shows the rest as it is.
std::string Contents(const Launch& launch, const absl::Status& status) {
  const std::string message =
      absl::StrCat(absl::StatusCodeToString(status.code()), ": ",
                   std::string(status.message()));
  const nlohmann::json extra = {
      {"py_callstack", message},
      {"timestamp", absl::StrCat(absl::ToUnixSeconds(absl::Now()))},
      {"rank", launch.rank},
  };
  const nlohmann::json all = {
      {"message", {{"message", message}, {"extraInfo", extra}}}};
  // Bytes of a path in the message need not be UTF-8.
  return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::Status Write(const std::string& path, const std::string& contents) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                          AtomicFile::Create(path));
  TANDEM_RETURN_IF_ERROR(file->Append(contents));
  return file->Commit();
}

}  // namespace

void WriteErrorFile(const Launch& launch, const absl::Status& status) {
  const std::optional<std::string> path =
      Environment::OfProcess().Get("TORCHELASTIC_ERROR_FILE");
  struct stat existing = {};
  if (!path.has_value() || stat(path->c_str(), &existing) == 0) return;
  Write(*path, Contents(launch, status)).IgnoreError();
}

}  // namespace tandem
