#include "core/backend/host_identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

// A namespace is told by the file that stands for it.
std::string Namespace(const char* path) {
  struct stat status {};
  if (stat(path, &status) != 0) return "";
  return absl::StrCat(status.st_dev, ":", status.st_ino);
}

}  // namespace

std::string HostIdentity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return absl::StrCat(name, " ", boot, " ", Namespace("/proc/self/ns/net"));
}

}  // namespace tandem
