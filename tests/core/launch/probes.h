// Launchers of tests/core/launch/probe.cc, and what becomes of their ranks. For
// tests.

#ifndef TANDEM_TESTS_CORE_LAUNCH_PROBES_H_
#define TANDEM_TESTS_CORE_LAUNCH_PROBES_H_

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"

namespace tandem {

inline std::vector<std::string> Probe(std::vector<std::string> flags) {
  flags.insert(flags.begin(), std::getenv("PROBE"));
  return flags;
}

inline std::string Nproc(int n) { return absl::StrCat("--nproc_per_node=", n); }

// Waits until all ranks have left their numbers in `dir`, and returns them.
inline std::vector<int> AwaitRanks(const std::string& dir, int ranks) {
  std::vector<int> pids;
  for (int i = 0; i < ranks; ++i) {
    pids.push_back(AwaitPid(absl::StrCat(dir, "/", i)));
  }
  return pids;
}

inline void ExpectGone(const std::vector<int>& pids) {
  for (const int pid : pids) {
    EXPECT_TRUE(Eventually([pid] { return !IsRunning(pid); })) << pid;
  }
}

// The state letter of /proc: T when stopped.
inline char StateOf(int pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string stat;
  std::getline(file, stat);
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos ? '?' : stat[name_end + 2];
}

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_LAUNCH_PROBES_H_
