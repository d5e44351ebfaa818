#include "tests/e2e/kills/stop_trial.h"

#include <signal.h>
#include <string.h>

#include <chrono>
#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/e2e/program.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

constexpr int kRanks = 2;

void Pause(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void Send(const StopTrial& trial, Program& program,
          const std::vector<pid_t>& ranks) {
  const StopManner& manner = *trial.manner;
  for (int i = 0; i < manner.times; ++i) {
    if (i > 0) Pause(0.05);
    if (manner.launcher) program.Signal(trial.signal);
    if (manner.between_ms > 0) Pause(manner.between_ms * 1e-3);
    for (int rank = 0; rank < manner.ranks; ++rank) {
      kill(ranks[static_cast<size_t>(rank)], trial.signal);
    }
  }
  if (!manner.hang_up) return;
  program.Signal(SIGHUP);
  for (const pid_t rank : ranks) kill(rank, SIGHUP);
}

// "... saved in FOLDER/step-000000031\n"
std::string SavedIn(const std::string& out) {
  const std::string before = "; saved in ";
  const size_t at = out.find(before);
  if (at == std::string::npos) return "";
  const size_t begin = at + before.size();
  return out.substr(begin, out.find('\n', begin) - begin);
}

}  // namespace

const std::vector<StopManner>& StopManners() {
  static const auto* const manners = new std::vector<StopManner>{
      {"the launcher", true, 0},
      {"the launcher and all ranks", true, kRanks},
      {"the launcher, and all ranks 20 ms later", true, kRanks, 20},
      {"the launcher, and all ranks 300 ms later", true, kRanks, 300},
      {"one rank", false, 1},
      {"all ranks", false, kRanks},
      {"the launcher, ten times in a row", true, 0, 0, 10},
      {"the launcher and all ranks, SIGHUP behind it", true, kRanks, 0, 1,
       true},
  };
  return *manners;
}

std::vector<StopTrial> MakeStopTrials(int count, uint64_t seed) {
  constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
  std::mt19937_64 random(seed);
  std::vector<StopTrial> trials;
  for (int i = 0; i < count; ++i) {
    const auto manners = static_cast<int>(StopManners().size());
    StopTrial trial;
    trial.manner = &StopManners()[static_cast<size_t>(i % manners)];
    trial.signal = kSignals[(i / manners) % 4];
    trial.seconds = static_cast<double>(random() % 1500) / 1000;
    trials.push_back(trial);
  }
  return trials;
}

std::string Describe(const StopTrial& trial) {
  return absl::StrFormat("SIG%s to %s, after %.2f s",
                         sigabbrev_np(trial.signal), trial.manner->name,
                         trial.seconds);
}

std::string RunStopTrial(const StopTrial& trial) {
  const std::string folder = NewFolder("stops");
  const Flags job = {"--model=gpt_tiny",
                     "--dataset=synthetic_tokens",
                     absl::StrCat("--nproc_per_node=", kRanks),
                     "--epochs=1000000",
                     "--log_every=1",
                     "--batch_size=4",
                     "--save_dir=" + folder};
  Program program(kTrain, Joined(job, trial.manner->flags));
  if (!program.WaitForOutput("  1/")) {
    return absl::StrCat("no step: ", program.Wait().err);
  }
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(PidOfRank(program, rank));
    if (ranks.back() == 0) return absl::StrCat("there is no rank ", rank);
  }
  Pause(trial.seconds);
  Send(trial, program, ranks);
  const ProgramResult result = program.Wait();
  const std::string said = absl::StrCat(result.out, result.err);
  if (result.exit_code != 128 + trial.signal) {
    return absl::StrCat("exit code ", result.exit_code, ": ", said);
  }
  if (!program.LivingProcesses().empty()) return "processes are left";
  const std::string saved = SavedIn(result.out);
  if (saved.empty()) return absl::StrCat("nothing is saved: ", said);
  if (NamesIn(folder).size() != 1) return "other folders are left";
  const ProgramResult inspected = RunProgram(kInspect, {saved});
  return inspected.exit_code == 0
             ? ""
             : absl::StrCat("the checkpoint is damaged: ", inspected.err);
}

}  // namespace tandem
