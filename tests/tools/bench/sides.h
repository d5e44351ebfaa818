// Sides of a comparison, for tests: ranks that are shells, peers that are
// scripts of Python, and results made by hand.

#ifndef TANDEM_TESTS_TOOLS_BENCH_SIDES_H_
#define TANDEM_TESTS_TOOLS_BENCH_SIDES_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "core/base/environment.h"
#include "tools/bench/comparison/contender.h"
#include "tools/bench/process/side.h"

namespace tandem {

// A folder that the running test has for itself.
inline std::string TestFolder() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string folder = testing::TempDir() + "/" + test->name();
  std::filesystem::create_directories(folder);
  return folder;
}

// Ranks that run `script`, in which $RANK is the rank, and $COMMANDS the FIFO
// of commands.
inline SideOptions ShellRanks(const std::string& name, int ranks,
                              const std::string& folder,
                              const std::string& script) {
  SideOptions options;
  options.name = name;
  options.ranks = ranks;
  options.folder = folder;
  options.environment = Environment::OfProcess();
  options.command = {"/bin/sh", "-c",
                     "for flag; do case $flag in --rank=*) RANK=${flag#*=};; "
                     "--commands=*) COMMANDS=${flag#*=};; esac; done; " +
                         script,
                     "sh"};
  return options;
}

// The command of a peer, whose `script` is written to a new folder.
inline std::vector<std::string> PythonPeer(const std::string& folder,
                                           const std::string& script) {
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/peer.py";
  std::ofstream(path) << script;
  return {"/usr/bin/env", "python3", path};
}

inline SideResult MeasuredSide(const std::string& name,
                               std::vector<double> step_ms,
                               double peak_mib = 0) {
  SideResult side;
  side.name = name;
  side.step_ms = std::move(step_ms);
  side.peak_mib = peak_mib;
  return side;
}

inline SideResult FailedSide(const std::string& name,
                             const std::string& failure) {
  SideResult side;
  side.name = name;
  side.failure = failure;
  return side;
}

}  // namespace tandem

#endif  // TANDEM_TESTS_TOOLS_BENCH_SIDES_H_
