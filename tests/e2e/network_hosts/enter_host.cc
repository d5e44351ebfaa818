// Runs a program on a host of tests/e2e/network_hosts/network_hosts.h: takes
// the namespaces of process KEEPER, and becomes the program.
//
//   enter_host KEEPER PROGRAM ARGUMENTS...

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  char* const here = getcwd(nullptr, 0);  // a mount namespace takes it away
  for (const char* kind : {"uts", "net", "mnt"}) {
    const std::string path = std::string("/proc/") + argv[1] + "/ns/" + kind;
    const int space = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, 0) != 0) {
      perror(path.c_str());
      return 126;
    }
  }
  if (here == nullptr || chdir(here) != 0) {
    perror("enter_host");
    return 126;
  }
  execv(argv[2], argv + 2);
  perror(argv[2]);
  return 127;
}
