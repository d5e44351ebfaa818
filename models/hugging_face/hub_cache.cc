#include "models/hugging_face/hub_cache.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "models/hugging_face/model_config.h"

namespace tandem {

std::string HintOfHubCache(const std::string& folder) {
  namespace fs = std::filesystem;
  std::string newest;  // by its name: any will do for a hint
  std::error_code error;
  for (fs::directory_iterator each(fs::path(folder) / "snapshots", error), end;
       !error && each != end; each.increment(error)) {
    if (!fs::exists(each->path() / kConfigFile, error)) continue;
    newest = std::max(newest, each->path().string());
  }
  return newest.empty() ? "" : absl::StrCat(" (did you mean ", newest, "?)");
}

}  // namespace tandem
