#include "parallel/schedule/choice.h"

#include <fstream>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/files/user_path.h"
#include "parallel/schedule/text.h"

namespace tandem {

bool IsScheduleFile(absl::string_view choice) {
  return choice.find('/') != absl::string_view::npos;
}

absl::StatusOr<Schedule> ReadScheduleFile(const std::string& path) {
  std::ifstream file(UserPath(path));
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
