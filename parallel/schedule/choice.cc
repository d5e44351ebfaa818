#include "parallel/schedule/choice.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/files/user_path.h"
#include "parallel/schedule/text.h"

namespace tandem {
namespace {

// A thousand devices with a thousand microbatches have less.
constexpr uintmax_t kMostBytes = uintmax_t{64} << 20;

// A device has no end, and a pipe may keep its reader waiting.
absl::Status CheckIsFile(const std::string& path, const std::string& at) {
  std::error_code error;
  if (!std::filesystem::exists(at, error)) {
    return absl::NotFoundError(absl::StrCat("cannot read ", path));
  }
  if (!std::filesystem::is_regular_file(at, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is no regular file: give one with a schedule's actions"));
  }
  const uintmax_t bytes = std::filesystem::file_size(at, error);
  if (bytes <= kMostBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      path, " has ", bytes, " bytes, a schedule at most ", kMostBytes));
}

}  // namespace

bool IsScheduleFile(absl::string_view choice) {
  return choice.find('/') != absl::string_view::npos;
}

absl::StatusOr<Schedule> ReadScheduleFile(const std::string& path) {
  const std::string at = UserPath(path);
  TANDEM_RETURN_IF_ERROR(CheckIsFile(path, at));
  std::ifstream file(at);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  std::ostringstream text;
  text << file.rdbuf();
  return ParseSchedule(path, text.str());
}

int UsualChunks(absl::string_view name) {
  const bool several =
      name == "zb_v" || name == "interleaved_1f1b" || name == "looped_bfs";
  return several ? 2 : 1;
}

int UsualChunks(absl::string_view name, int stages) {
  const int usual = UsualChunks(name);
  return name == "zb_v" || stages % usual == 0 ? usual : 1;
}

}  // namespace tandem
