#include "core/files/user_path.h"

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tandem {

std::string UserPath(absl::string_view path) {
  const char* home = std::getenv("HOME");
  const bool has_home = home != nullptr && *home != '\0';
  if (has_home && path == "~") return home;
  if (has_home && absl::StartsWith(path, "~/")) {
    return absl::StrCat(absl::StripSuffix(home, "/"), path.substr(1));
  }
  const char* stands = std::getenv("BUILD_WORKING_DIRECTORY");
  if (stands == nullptr || *stands == '\0' || path.empty() ||
      absl::StartsWith(path, "/") || absl::StartsWith(path, "~")) {
    return std::string(path);
  }
  return absl::StrCat(absl::StripSuffix(stands, "/"), "/", path);
}

}  // namespace tandem
