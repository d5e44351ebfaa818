#include "tests/e2e/program.h"

#include <signal.h>
#include <unistd.h>

#include <thread>

#include "gtest/gtest.h"

namespace tandem {
namespace {

std::vector<std::string> Shell(const std::string& script) {
  return {"-c", script};
}

class ProgramTest : public testing::Test {
 protected:
  // /bin/sh by a path that starts at the runfiles root.
  void SetUp() override {
    for (char c :
         std::string(getenv("TEST_SRCDIR")) + "/" + getenv("TEST_WORKSPACE")) {
      if (c == '/') sh_ += "../";
    }
    sh_ += "bin/sh";
  }
  std::string sh_;
};

TEST_F(ProgramTest, KeepsWhatItSaysAndHowItEnded) {
  const ProgramResult result =
      RunProgram(sh_, Shell("echo out; echo err >&2; exit 3"));
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
}

TEST_F(ProgramTest, PassesEnvironment) {
  ProgramOptions options;
  options.environment["TANDEM_TEST"] = "a value";
  EXPECT_EQ(RunProgram(sh_, Shell("echo $TANDEM_TEST"), options).out,
            "a value\n");
}

TEST_F(ProgramTest, NamesTheSignalThatEndedIt) {
  EXPECT_EQ(RunProgram(sh_, Shell("kill -9 $$")).exit_code, 128 + SIGKILL);
}

TEST_F(ProgramTest, WaitsForOutputAndSignals) {
  Program program(sh_, Shell("trap 'exit 7' TERM; echo ready; "
                             "while :; do sleep 0.05; done"));
  ASSERT_TRUE(program.WaitForOutput("ready"));
  program.Signal(SIGTERM);
  EXPECT_EQ(program.Wait().exit_code, 7);
  EXPECT_FALSE(program.WaitForOutput("never said"));
}

TEST_F(ProgramTest, CountsOrphans) {
  Program program(sh_, Shell("sleep 60 & exit 0"));
  EXPECT_EQ(program.Wait().exit_code, 0);
  EXPECT_EQ(program.LivingProcesses().size(), 1);
}

TEST_F(ProgramTest, KillsWhatTakesTooLong) {
  ProgramOptions options;
  options.timeout = std::chrono::seconds(1);
  Program program(sh_, Shell("sleep 60 & wait"), options);
  EXPECT_EQ(program.Wait().exit_code, 128 + SIGKILL);
  // What was killed with it is gone a moment later.
  for (int look = 0; look < 3000 && !program.LivingProcesses().empty();
       ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(program.LivingProcesses().empty());
}

}  // namespace
}  // namespace tandem
