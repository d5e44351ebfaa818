#include "tools/bench/process/metrics.h"

#include <fstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem {

using nlohmann::json;

absl::StatusOr<std::vector<json>> MetricsEvents(const std::string& path,
                                                const std::string& name) {
  std::vector<json> events;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    json event = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (event.is_object() && event.value("event", "") == name) {
      events.push_back(std::move(event));
    }
  }
  if (!events.empty()) return events;
  return absl::InternalError(absl::StrCat(path, " has no event ", name));
}

}  // namespace tandem
