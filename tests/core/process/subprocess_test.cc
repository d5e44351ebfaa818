#include "core/process/subprocess.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/process/process_end.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

SubprocessOptions Shell(const std::string& script) {
  SubprocessOptions options;
  options.program = "/bin/sh";
  options.argv = {"sh", "-c", script};
  options.environment = {"GREETING=hello", "PATH=/usr/bin:/bin"};
  options.out = SubprocessOptions::Stream::kPipe;
  return options;
}

Subprocess Start(const SubprocessOptions& options) {
  auto process = Subprocess::Start(options);
  EXPECT_TRUE(process.ok()) << process.status();
  return *std::move(process);
}

// What it writes until its end.
std::string Output(Subprocess& process) {
  std::string text;
  char buffer[4096];
  Eventually([&] {
    ssize_t got;
    while ((got = read(process.out_fd(), buffer, sizeof(buffer))) > 0) {
      text.append(buffer, got);
    }
    return got == 0;
  });
  return text;
}

TEST(SubprocessTest, RunsAProgramWithItsArgumentsAndEnvironment) {
  Subprocess process = Start(Shell("echo $GREETING; echo bad >&2; exit 3"));
  EXPECT_EQ(Output(process), "hello\n");
  const auto end = process.Wait(seconds(60));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(DescribeEnd(*end), "exit code 3");
  EXPECT_EQ(ShellExitCode(*end), 3);
}

TEST(SubprocessTest, NamesAProgramThatCannotBeExecuted) {
  SubprocessOptions options = Shell("");
  options.program = "/no/such/program";
  const absl::Status error = Subprocess::Start(options).status();
  EXPECT_EQ(error.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(error.message(), HasSubstr("/no/such/program"));
}

TEST(SubprocessTest, TellsTheSignalThatKilledIt) {
  Subprocess process = Start(Shell("kill -9 $$"));
  const auto end = process.Wait(seconds(60));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(DescribeEnd(*end), "killed by signal 9 (SIGKILL)");
  EXPECT_EQ(ShellExitCode(*end), 137);
}

TEST(SubprocessTest, WaitGivesUpAtItsTimeout) {
  Subprocess process = Start(Shell("sleep 600"));
  EXPECT_EQ(process.Wait(milliseconds(20)), std::nullopt);
}

TEST(SubprocessTest, StopAsksFirst) {
  Subprocess process = Start(
      Shell("trap 'exit 7' TERM; echo ready; while true; do sleep 0.01; done"));
  char c;
  EXPECT_TRUE(Eventually([&] { return read(process.out_fd(), &c, 1) == 1; }));
  EXPECT_EQ(ShellExitCode(process.Stop(seconds(60))), 7);
}

TEST(SubprocessTest, StopKillsWhatDoesNotListen) {
  Subprocess process =
      Start(Shell("trap '' TERM; echo ready; while true; do sleep 0.01; done"));
  char c;
  EXPECT_TRUE(Eventually([&] { return read(process.out_fd(), &c, 1) == 1; }));
  EXPECT_EQ(ShellExitCode(process.Stop(milliseconds(50))), 128 + SIGKILL);
}

TEST(SubprocessTest, ItsOwnChildrenGoWithIt) {
  Subprocess process = Start(Shell("sleep 600 & echo $!; exit 0"));
  // The pipe ends only when the last one that could write to it has ended.
  EXPECT_TRUE(process.Wait(seconds(60)).has_value());
  const int grandchild = std::stoi(Output(process));
  EXPECT_TRUE(Eventually([&] { return !IsRunning(grandchild); }));
}

TEST(SubprocessTest, GoesWhenItsObjectGoes) {
  int pid;
  {
    Subprocess process = Start(Shell("sleep 600"));
    pid = process.pid();
    Subprocess moved = std::move(process);
    EXPECT_EQ(moved.pid(), pid);
  }
  EXPECT_FALSE(IsRunning(pid));
}

TEST(SubprocessTest, EndsWhereSigchldIsIgnoredToo) {
  signal(SIGCHLD, SIG_IGN);
  Subprocess process = Start(Shell("exit 0"));
  const auto end = process.Wait(seconds(60));
  EXPECT_EQ(end, kUnknownEnd);
  EXPECT_THAT(DescribeEnd(*end), HasSubstr("SIGCHLD"));
  EXPECT_EQ(ShellExitCode(*end), 255);
  EXPECT_EQ(Start(Shell("sleep 600")).Stop(seconds(60)), kUnknownEnd);
  signal(SIGCHLD, SIG_DFL);
}

TEST(SubprocessTest, GetsNoOtherFileDescriptors) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  Subprocess process = Start(
      Shell(absl::StrCat("test -e /proc/self/fd/", fds[1], " && echo there")));
  EXPECT_EQ(Output(process), "");
  close(fds[0]);
  close(fds[1]);
}

TEST(SubprocessTest, ATerminalIsOneAndAddsNothing) {
  SubprocessOptions options = Shell("test -t 1 && printf 'yes\\n'");
  options.out = SubprocessOptions::Stream::kTerminal;
  Subprocess process = Start(options);
  std::string text;
  char buffer[64];
  Eventually([&] {
    const ssize_t got = read(process.out_fd(), buffer, sizeof(buffer));
    if (got > 0) text.append(buffer, got);
    return text.size() >= 4 || (got < 0 && errno != EAGAIN);
  });
  EXPECT_EQ(text, "yes\n");
}

TEST(ProcessEndTest, NamesSignals) {
  EXPECT_EQ(SignalName(SIGTERM), "SIGTERM");
  EXPECT_EQ(SignalName(12345), "signal 12345");
}

}  // namespace
}  // namespace tandem
