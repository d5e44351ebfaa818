#include "tests/e2e/side_by_side.h"

#include <glog/logging.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "core/base/environment.h"
#include "core/process/process_end.h"
#include "core/process/subprocess.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

// Where the process of one test writes; not set in the one that runs them all.
constexpr char kOutput[] = "TANDEM_SIDE_BY_SIDE_OUTPUT";

// GoogleTest's variables: among how many programs the tests are divided, and
// which of these this one is.
constexpr char kShards[] = "GTEST_TOTAL_SHARDS=";
constexpr char kShard[] = "GTEST_SHARD_INDEX=";

// The limit is that of the whole test program.
constexpr std::chrono::hours kNoLimit(24);

using Arguments = std::vector<std::string>;

std::string TakeContents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string contents(std::istreambuf_iterator<char>(file), {});
  unlink(path.c_str());
  return contents;
}

// Names a file that is to tell of all tests, which each would overwrite, or
// which of all tests are this shard's.
bool BelongsToTheWhole(const std::string& setting) {
  return absl::StartsWith(setting, "XML_OUTPUT_FILE=") ||
         absl::StartsWith(setting, "GTEST_OUTPUT=") ||
         absl::StartsWith(setting, kShards) ||
         absl::StartsWith(setting, kShard) ||
         absl::StartsWith(setting, "TEST_PREMATURE_EXIT_FILE=");
}

struct Ended {
  int exit_code;
  std::string output;
};

// This program once more.
Ended Run(const Arguments& arguments) {
  std::string path = testing::TempDir() + "/side_by_side.XXXXXX";
  const int file = mkstemp(path.data());
  PCHECK(file >= 0) << path;
  close(file);
  SubprocessOptions options;
  options.program = arguments[0];
  options.argv = arguments;
  for (const std::string& each : Environment::OfProcess().ToStrings()) {
    if (!BelongsToTheWhole(each)) options.environment.push_back(each);
  }
  options.environment.push_back(std::string(kOutput) + "=" + path);
  absl::StatusOr<Subprocess> process = Subprocess::Start(options);
  CHECK(process.ok()) << process.status();
  const int end = process->Wait(kNoLimit).value();
  return {ShellExitCode(end), TakeContents(path)};
}

// The number in such a variable, or `usual` without it.
size_t NumberIn(const std::string& variable, size_t usual) {
  const char* const text =
      getenv(variable.substr(0, variable.size() - 1).c_str());
  size_t number = usual;
  CHECK(text == nullptr || absl::SimpleAtoi(text, &number)) << variable << text;
  return number;
}

// The tests that are this shard's.
std::vector<std::string> ShardTests(const std::vector<std::string>& all) {
  std::vector<std::string> tests;
  const size_t shards = NumberIn(kShards, 1);
  for (size_t i = NumberIn(kShard, 0); i < all.size(); i += shards) {
    tests.push_back(all[i]);
  }
  return tests;
}

// "Suite." and below it, indented, "Name  # value".
std::vector<std::string> SelectedTests(Arguments arguments) {
  arguments.push_back("--gtest_list_tests");
  const Ended list = Run(arguments);
  CHECK_EQ(list.exit_code, 0) << list.output;
  std::vector<std::string> tests;
  std::string suite;
  std::istringstream lines(list.output);
  for (std::string line; std::getline(lines, line);) {
    const std::string name = line.substr(0, line.find("  #"));
    if (absl::StartsWith(name, "  ")) {
      tests.push_back(suite + name.substr(2));
    } else {
      suite = name;
    }
  }
  return tests;
}

class Tests {
 public:
  explicit Tests(const Arguments& arguments)
      : arguments_(arguments), tests_(ShardTests(SelectedTests(arguments))) {}

  int Run(int at_once) {
    std::vector<std::thread> workers;
    for (int i = 0; i < at_once; ++i) {
      workers.emplace_back([this] { Work(); });
    }
    for (std::thread& worker : workers) worker.join();
    std::cout << tests_.size() << " tests, " << failed_ << " failed"
              << std::endl;
    return !tests_.empty() && failed_ == 0 ? 0 : 1;
  }

 private:
  void Work();
  // The next test's name; empty when all have begun.
  std::string Begin();
  void End(const std::string& test, const Ended& end,
           std::chrono::milliseconds time);

  const Arguments arguments_;
  const std::vector<std::string> tests_;
  std::mutex mutex_;
  size_t begun_ = 0;
  int failed_ = 0;
};

void Tests::Work() {
  using Clock = std::chrono::steady_clock;
  for (std::string test = Begin(); !test.empty(); test = Begin()) {
    Arguments arguments = arguments_;
    arguments.push_back("--gtest_filter=" + test);
    const auto began = Clock::now();
    const Ended end = tandem::Run(arguments);
    End(test, end,
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() -
                                                              began));
  }
}

std::string Tests::Begin() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (begun_ == tests_.size()) return "";
  std::cout << "[ RUN      ] " << tests_[begun_] << std::endl;
  return tests_[begun_++];
}

void Tests::End(const std::string& test, const Ended& end,
                std::chrono::milliseconds time) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // A test that calls exit(0) has not come to its end.
  const bool failed = end.exit_code != 0 ||
                      !absl::StrContains(end.output, "[  PASSED  ] 1 test.");
  if (failed) {
    ++failed_;
    std::cout << end.output;
  }
  std::cout << (failed ? "[  FAILED  ] " : "[       OK ] ") << test << " ("
            << time.count() << " ms";
  if (failed) std::cout << ", exit code " << end.exit_code;
  std::cout << ")" << std::endl;
}

}  // namespace

int RunSideBySide(int argc, char** argv, int at_once) {
  const Arguments arguments(argv, argv + argc);
  const char* output = getenv(kOutput);
  if (output == nullptr) return Tests(arguments).Run(at_once);
  PCHECK(freopen(output, "w", stdout) != nullptr) << output;
  PCHECK(dup2(STDOUT_FILENO, STDERR_FILENO) >= 0);
  unsetenv(kOutput);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace tandem
