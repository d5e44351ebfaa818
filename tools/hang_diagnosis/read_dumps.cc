#include "tools/hang_diagnosis/read_dumps.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/flight/dump_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Far more than a recorder's ring comes to.
constexpr uintmax_t kMostBytes = 64 << 20;

absl::StatusOr<FlightDump> ReadDump(const fs::path& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error) return absl::UnavailableError(error.message());
  if (size > kMostBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", size, " bytes, more than any dump"));
  }
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::UnavailableError("cannot be read");
  TANDEM_ASSIGN_OR_RETURN(FlightDump dump, DecodeFlightDump(text.str()));
  const fs::path named = FlightDumpPath("", dump.rank);
  if (path.filename() != named.filename()) {
    return absl::InvalidArgumentError(
        absl::StrCat("is the dump of rank ", dump.rank));
  }
  return dump;
}

bool IsNamedAsDump(const std::string& name) {
  return absl::StartsWith(name, "rank_") && absl::EndsWith(name, ".json");
}

absl::StatusOr<std::vector<fs::path>> DumpFiles(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::directory_iterator each(folder, error);
  for (; !error && each != fs::directory_iterator(); each.increment(error)) {
    if (IsNamedAsDump(each->path().filename())) files.push_back(each->path());
  }
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("folder ", folder, ": ", error.message()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Keeps those of the job that wrote last.
void KeepLastJob(FoundDumps* found) {
  const auto last =
      std::max_element(found->dumps.begin(), found->dumps.end(),
                       [](const FlightDump& one, const FlightDump& other) {
                         return one.dumped_ns < other.dumped_ns;
                       });
  const std::string job = last->job;
  std::vector<FlightDump> kept;
  for (FlightDump& each : found->dumps) {
    if (each.job == job) {
      kept.push_back(std::move(each));
    } else {
      found->ignored.push_back(
          absl::StrCat("rank_", each.rank, ".json: of another job"));
    }
  }
  found->dumps = std::move(kept);
}

}  // namespace

absl::StatusOr<FoundDumps> ReadDumps(const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<fs::path> files, DumpFiles(folder));
  FoundDumps found;
  for (const fs::path& each : files) {
    absl::StatusOr<FlightDump> dump = ReadDump(each);
    if (dump.ok()) {
      found.dumps.push_back(*std::move(dump));
    } else {
      found.ignored.push_back(absl::StrCat(each.filename().string(), ": ",
                                           dump.status().message()));
    }
  }
  if (found.dumps.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "folder ", folder, " has no rank_N.json that is a flight dump",
        found.ignored.empty() ? ""
                              : absl::StrCat(": ", found.ignored.front())));
  }
  KeepLastJob(&found);
  std::sort(found.dumps.begin(), found.dumps.end(),
            [](const FlightDump& one, const FlightDump& other) {
              return one.rank < other.rank;
            });
  return found;
}

}  // namespace tandem
