#include "core/program/openmp_waits.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

constexpr char kPolicy[] = "OMP_WAIT_POLICY";
constexpr char kSpins[] = "GOMP_SPINCOUNT";
constexpr char kThisProgram[] = "/proc/self/exe";

// A test that calls a program's main function has other arguments itself.
bool IsCommandLine(int argc, char** argv) {
  std::string given;
  for (int i = 0; i < argc; ++i) {
    absl::StrAppend(&given, argv[i], absl::string_view("\0", 1));
  }
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string own((std::istreambuf_iterator<char>(file)),
                        std::istreambuf_iterator<char>());
  return given == own;
}

}  // namespace

bool SpinningWastesCores(const Environment& env, const MachineLoad& load,
                         int cores) {
  return cores > 1 && !env.Get(kPolicy).has_value() &&
         !env.Get(kSpins).has_value() && IsBusy(load, cores);
}

bool SpinningWastesCores() {
  return SpinningWastesCores(Environment::OfProcess(), ReadMachineLoad(),
                             static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

void HaveChildrenWaitPassively() {
  setenv(kPolicy, "passive", /*overwrite=*/1);
}

void WaitPassivelyWhereBusy(int argc, char** argv, bool spins_in_vain) {
  if (!spins_in_vain || !IsCommandLine(argc, argv)) return;
  HaveChildrenWaitPassively();
  // By its own path, after which the process is named.
  std::error_code error;
  const std::string program =
      std::filesystem::read_symlink(kThisProgram, error).string();
  if (!error) execv(program.c_str(), argv);
  execv(kThisProgram, argv);
}

}  // namespace tandem
