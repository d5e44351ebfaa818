#include "core/instrument/fault_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/process/spawn.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class FaultPointTest : public ::testing::Test {
 protected:
  ~FaultPointTest() override {
    unsetenv("TANDEM_FAULT");
    ArmFaults({});
  }

  static absl::Status Arm(const char* text) {
    setenv("TANDEM_FAULT", text, /*overwrite=*/1);
    return ArmFaultsFromEnvironment();
  }

  // How a child ends that arms `text` and passes bucket:1 of step 3 on rank 2.
  // 42 when it passed.
  static int WaitStatusOf(const char* text, int options = 0) {
    const pid_t pid = fork();
    if (pid == 0) {
      if (!Arm(text).ok()) _exit(1);
      SetFaultContext(2, 3);
      _exit(FaultPoint("bucket", 1).ok() ? 42 : 43);
    }
    int status = 0;
    waitpid(pid, &status, options);
    if (WIFSTOPPED(status)) {
      kill(pid, SIGCONT);
      int end = 0;
      waitpid(pid, &end, 0);
      EXPECT_EQ(WEXITSTATUS(end), 42) << "it goes on when it is continued";
    }
    return status;
  }
};

TEST_F(FaultPointTest, NothingHappensUnlessAskedFor) {
  EXPECT_TRUE(FaultPoint("after_forward").ok());
  unsetenv("TANDEM_FAULT");
  EXPECT_TRUE(ArmFaultsFromEnvironment().ok());
  EXPECT_TRUE(Arm("").ok());
  EXPECT_TRUE(FaultPoint("after_forward").ok());
}

TEST_F(FaultPointTest, AFaultIsReadWithAllItsKeysInAnyOrder) {
  const auto faults = ParseFaults(
      "action=exit:7, step=3,rank=2,point=bucket:1; "
      "point=after_forward,action=delay:0.25");
  ASSERT_TRUE(faults.ok()) << faults.status();
  ASSERT_THAT(*faults, SizeIs(2));
  EXPECT_EQ((*faults)[0].point, "bucket:1");
  EXPECT_EQ((*faults)[0].rank, 2);
  EXPECT_EQ((*faults)[0].step, 3);
  EXPECT_EQ((*faults)[0].action, Fault::Action::kExit);
  EXPECT_EQ((*faults)[0].exit_code, 7);
  EXPECT_EQ((*faults)[1].rank, std::nullopt);
  EXPECT_EQ((*faults)[1].step, std::nullopt);
  EXPECT_EQ((*faults)[1].action, Fault::Action::kDelay);
  EXPECT_EQ((*faults)[1].delay_seconds, 0.25);
  EXPECT_THAT(*ParseFaults(" "), IsEmpty());
}

TEST_F(FaultPointTest, MalformedTextIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"kill", "'kill': expected point=, rank=, step= or action="},
      {"point=a", "'point=a': expected both point= and action="},
      {"action=kill", "'action=kill': expected both point= and action="},
      {"point=,action=kill", "'point='"},
      {"point=a,action=explode", "'explode': expected the action kill, stop"},
      {"point=a,action=kill:9", "'kill:9'"},
      {"point=a,action=exit", "'exit': expected exit:CODE"},
      {"point=a,action=exit:256", "'exit:256'"},
      {"point=a,action=exit:-1", "'exit:-1'"},
      {"point=a,action=delay:soon", "'delay:soon': expected delay:SECONDS"},
      {"point=a,action=delay:nan", "'delay:nan'"},
      {"point=a,action=delay:-1", "'delay:-1'"},
      {"point=a,action=delay:1e9", "'delay:1e9'"},
      {"point=a,rank=x,action=kill", "'rank=x': expected an integer"},
      {"point=a,step=-1,action=kill", "'step=-1': expected an integer"},
      {"point=a,when=now,action=kill", "'when=now'"},
      {"point=a,action=kill;", "''"},
  };
  for (const auto& [text, message] : cases) {
    const absl::Status status = ParseFaults(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(status.message(), HasSubstr(message)) << text;
  }
  const absl::Status status = Arm("kill");
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("TANDEM_FAULT='kill'"));
}

TEST_F(FaultPointTest, OnlyThatPointRankAndStepFail) {
  ASSERT_TRUE(Arm("point=bucket:1,rank=2,step=3,action=fail").ok());
  SetFaultContext(2, 3);
  EXPECT_TRUE(FaultPoint("bucket", 0).ok());
  EXPECT_TRUE(FaultPoint("bucket").ok());
  EXPECT_TRUE(FaultPoint("before_optimizer").ok());
  const absl::Status failed = FaultPoint("bucket", 1);
  EXPECT_TRUE(absl::IsInternal(failed));
  EXPECT_EQ(failed.message(),
            "a fault was asked for at bucket:1 of step 3 on rank 2");
  EXPECT_EQ(FaultPoint("bucket:1"), failed);
  SetFaultContext(1, 3);
  EXPECT_TRUE(FaultPoint("bucket", 1).ok());
  SetFaultContext(2, 4);
  EXPECT_TRUE(FaultPoint("bucket", 1).ok());
}

TEST_F(FaultPointTest, WithoutRankAndStepEveryPassingFails) {
  ASSERT_TRUE(Arm("point=after_forward,action=fail").ok());
  for (const int64_t step : {0, 1, 7}) {
    SetFaultContext(static_cast<int>(step), step);
    EXPECT_FALSE(FaultPoint("after_forward").ok());
  }
}

TEST_F(FaultPointTest, ATestsOwnFunctionIsCalledThere) {
  int calls = 0;
  Fault fault;
  fault.point = "bucket:1";
  fault.action = Fault::Action::kCall;
  fault.call = [&calls]() -> absl::Status {
    return ++calls == 1 ? absl::OkStatus() : absl::AbortedError("twice");
  };
  ArmFaults({fault});
  EXPECT_TRUE(FaultPoint("bucket", 0).ok());
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(FaultPoint("bucket", 1).ok());
  EXPECT_EQ(FaultPoint("bucket", 1).message(), "twice");
  EXPECT_EQ(calls, 2);
  EXPECT_FALSE(ParseFaults("point=a,action=call").ok());
}

TEST_F(FaultPointTest, KillExitAndStopDoWhatTheySay) {
  int end = WaitStatusOf("point=bucket:1,rank=2,step=3,action=kill");
  EXPECT_TRUE(WIFSIGNALED(end) && WTERMSIG(end) == SIGKILL) << end;
  end = WaitStatusOf("point=bucket:1,action=exit:7");
  EXPECT_TRUE(WIFEXITED(end) && WEXITSTATUS(end) == 7) << end;
  end = WaitStatusOf("point=bucket:1,action=stop", WUNTRACED);
  EXPECT_TRUE(WIFSTOPPED(end) && WSTOPSIG(end) == SIGSTOP) << end;
  end = WaitStatusOf("point=bucket:1,rank=1,action=kill");
  EXPECT_TRUE(WIFEXITED(end) && WEXITSTATUS(end) == 42) << end;
}

TEST_F(FaultPointTest, ADelayIsSleptAndNoError) {
  ASSERT_TRUE(Arm("point=after_forward,action=delay:0.05").ok());
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(FaultPoint("after_forward").ok());
  EXPECT_GE(std::chrono::steady_clock::now() - start,
            std::chrono::milliseconds(50));
}

TEST_F(FaultPointTest, SpawnedRanksTellTheirOwnFault) {
  ASSERT_TRUE(Arm("point=after_forward,rank=1,step=2,action=fail").ok());
  const absl::Status status = Spawn(
      [](int rank) -> absl::Status {
        for (int64_t step = 1; step <= 3; ++step) {
          SetFaultContext(rank, step);
          const absl::Status passed = FaultPoint("after_forward");
          if (!passed.ok()) return passed;
        }
        return absl::OkStatus();
      },
      3);
  EXPECT_EQ(status.message(),
            "rank 1: a fault was asked for at after_forward of step 2 on "
            "rank 1");
}

}  // namespace
}  // namespace tandem
