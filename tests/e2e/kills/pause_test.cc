// Processes of a job that are stopped (SIGSTOP) for less than the timeout, and
// go on: the job ends with the bits of one that nobody stopped.

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

// Long enough for those that wait to begin to ask around, twice a second.
constexpr std::chrono::milliseconds kPause(1500);

// Before its last steps rank 1 stops itself, so that the job still runs when
// the test stops it, however late that is.
constexpr char kStopsItself[] = "point=step,rank=1,step=170,action=stop";

// 'T': it is stopped; 'Z': it has ended; 0: there is none.
char StateOf(pid_t pid) {
  const std::string text =
      FileContents("/proc/" + std::to_string(pid) + "/stat");
  const size_t after_name = text.rfind(") ");
  return after_name == std::string::npos ? '\0' : text[after_name + 2];
}

// Has the process go on whenever it has stopped, until it has ended.
void KeepGoing(pid_t pid) {
  while (true) {
    const char state = StateOf(pid);
    if (state == '\0' || state == 'Z') return;
    if (state == 'T') kill(pid, SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

struct Cell {
  std::string name;
  std::vector<int> ranks;
  bool launcher;
};

TEST(PauseTest, AStoppedProcessThatGoesOnChangesNoBit) {
  const Flags job =
      SmallJob(Joined({"--epochs=30", "--nproc_per_node=2", "--timeout=60"},
                      TestBackendFlags({"--backend=gloo"})));
  const std::string undisturbed = Fingerprint(RunJobForEvents(job));
  const Cell cells[] = {
      {"rank 0", {0}, false},
      {"rank 1", {1}, false},
      {"the launcher, which serves the store", {}, true},
      {"all of them", {0, 1}, true},
  };
  for (const Cell& cell : cells) {
    std::cout << "cell: " << cell.name << "\n";
    const std::string metrics = NewFolder("metrics") + "/metrics.jsonl";
    Program program(kTrain, Joined(job, {"--metrics_file=" + metrics}),
                    FaultOf(kStopsItself));
    ASSERT_TRUE(program.WaitForOutput("loss"));
    const pid_t one = PidOfRank(program, 1);
    ASSERT_NE(one, 0) << "the job is over";
    std::vector<pid_t> stopped;
    if (cell.launcher) stopped.push_back(program.pid());
    for (const int rank : cell.ranks) {
      stopped.push_back(PidOfRank(program, rank));
      ASSERT_NE(stopped.back(), 0) << "the job is over";
    }
    for (const pid_t pid : stopped) ASSERT_EQ(kill(pid, SIGSTOP), 0);
    const bool one_is_stopped =
        std::find(stopped.begin(), stopped.end(), one) != stopped.end();
    std::thread keeper;
    if (!one_is_stopped) keeper = std::thread(KeepGoing, one);
    std::this_thread::sleep_for(kPause);
    for (const pid_t pid : stopped) EXPECT_EQ(kill(pid, SIGCONT), 0);
    if (one_is_stopped) keeper = std::thread(KeepGoing, one);
    const ProgramResult result = program.Wait();
    keeper.join();
    EXPECT_EQ(result.exit_code, 0) << cell.name << "\n" << result.err;
    EXPECT_EQ(Fingerprint(ReadEvents(metrics)), undisturbed) << cell.name;
  }
  std::cout << std::size(cells) << " cells\n";
}

}  // namespace
}  // namespace tandem
