#include "datasets/tokenizers/read_file.h"

#include <sys/stat.h>

#include <cstdint>

#include "core/files/regular_file.h"

namespace tandem {

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  constexpr uint64_t kMostBytes = uint64_t{256} << 20;
  return ReadShortFile(path, kMostBytes);
}

bool IsRegularFile(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace tandem
