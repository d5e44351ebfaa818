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

// What stands behind the host's name, in which there is no space.
absl::string_view NetworkIdentity(absl::string_view identity) {
  const size_t space = identity.find(' ');
  return space == absl::string_view::npos ? absl::string_view()
                                          : identity.substr(space);
}

}  // namespace

std::string HostIdentity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return absl::StrCat(name, " ", boot, " ", Namespace("/proc/self/ns/net"));
}

bool SharesLoopback(absl::string_view one, absl::string_view other) {
  return NetworkIdentity(one) == NetworkIdentity(other);
}

}  // namespace tandem
