#include "tests/e2e/kills/trial.h"

#include <signal.h>

#include <chrono>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

// Ten epochs of four steps, saved every three: in the middle of epochs, too.
constexpr int kSteps = 40;

Flags JobOf(const KilledLayout& layout, const std::string& metrics) {
  return Joined(
      SmallJob({"--epochs=10", "--batch_size=24", "--metrics_file=" + metrics}),
      layout.flags);
}

Flags SavedJobOf(const Trial& trial, const std::string& folder,
                 const std::string& metrics) {
  Flags flags =
      Joined(JobOf(*trial.layout, metrics),
             {"--save_dir=" + folder, "--save_every=3", "--resume=auto",
              "--max_restarts=3", "--restart_delay=0"});
  if (trial.asynchronous) flags.push_back("--async_save");
  return flags;
}

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string NewMetrics() { return NewFolder("kills") + "/metrics.jsonl"; }

// The last line of the file may have been cut off.
Events WholeEvents(const std::string& path) {
  Events events;
  const std::string text = FileContents(path);
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    events.push_back(nlohmann::json::parse(text.substr(begin, end - begin)));
  }
  return events;
}

// False: it had ended by then.
bool Kill(const Trial& trial, const Program& program) {
  if (trial.victim == Trial::Victim::kLauncher) {
    return !program.LivingProcesses().empty() &&
           kill(program.pid(), SIGKILL) == 0;
  }
  bool any = false;
  for (int rank = 0; rank < trial.layout->ranks; ++rank) {
    if (trial.victim == Trial::Victim::kOneRank && rank != trial.rank) continue;
    const pid_t pid = PidOfRank(program, rank);
    any = (pid != 0 && kill(pid, SIGKILL) == 0) || any;
  }
  return any;
}

ProgramOptions FaultOf(const Trial& trial) {
  ProgramOptions options;
  if (!trial.point.empty()) {
    options.environment["TANDEM_FAULT"] = absl::StrCat(
        "point=", trial.point, ",rank=", trial.rank, ",action=kill,step=",
        3 * (1 + static_cast<int>(trial.moment * (kSteps / 3 - 1))));
  }
  return options;
}

int CountOf(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) {
    ++count;
  }
  return count;
}

// Each step there, and each time with the loss that it has undisturbed: no
// sample was lost, none came twice.
std::string CheckSteps(const Events& events, const Undisturbed& undisturbed) {
  std::map<int, double> seen;
  for (const nlohmann::json& event : EventsOf(events, "step")) {
    const int step = event["step"];
    seen[step] = event["loss"];
    if (seen[step] == undisturbed.losses.at(step)) continue;
    return absl::StrCat("step ", step, " has the loss ", seen[step],
                        ", undisturbed ", undisturbed.losses.at(step));
  }
  for (const auto& each : undisturbed.losses) {
    if (seen.count(each.first) == 0) {
      return absl::StrCat("step ", each.first, " is missing");
    }
  }
  const Events summaries = EventsOf(events, "summary");
  if (summaries.empty()) return "there is no summary";
  if (summaries.back()["weights_sha256"] == undisturbed.weights_sha256) {
    return "";
  }
  return "it ended with other bits";
}

}  // namespace

const std::vector<KilledLayout>& KilledLayouts() {
  static const auto* const layouts = new std::vector<KilledLayout>{
      {"single", 1, {"--nproc_per_node=1"}},
      {"ddp", 3, {"--nproc_per_node=3"}},
      {"pipeline",
       2,
       {"--nproc_per_node=2", "--pipe=2", "--microbatch_size=8"}},
      {"hybrid", 4, {"--nproc_per_node=4", "--pipe=2", "--microbatch_size=6"}},
  };
  return *layouts;
}

std::vector<Trial> MakeTrials(int count, uint64_t seed) {
  const std::vector<std::string> points = {
      "", "write_tensor:2", "", "before_commit", "", "checkpoint_manifest",
      "", "folder_rename",  "", "folder_renamed"};
  std::mt19937_64 random(seed);
  std::vector<Trial> trials;
  for (int i = 0; i < count; ++i) {
    Trial trial;
    trial.layout = &KilledLayouts()[i % KilledLayouts().size()];
    trial.point = points[(i / 4 + i) % points.size()];
    // A point is one rank's, which saves.
    trial.victim = trial.point.empty() ? static_cast<Trial::Victim>((i / 2) % 3)
                                       : Trial::Victim::kOneRank;
    trial.rank = trial.point.empty()
                     ? static_cast<int>(random() % trial.layout->ranks)
                     : 0;
    trial.moment = static_cast<double>(random() % 1000) / 1000;
    trial.asynchronous = (i / 8) % 2 == 1;
    trials.push_back(trial);
  }
  return trials;
}

std::string Describe(const Trial& trial) {
  const char* const victims[] = {"one rank", "all ranks", "the launcher"};
  return absl::StrFormat(
      "%s, %s, %s %.3f of the run%s", trial.layout->name,
      victims[static_cast<int>(trial.victim)],
      trial.point.empty() ? "after" : "at " + trial.point + ", after",
      trial.moment, trial.asynchronous ? ", asynchronous saves" : "");
}

Undisturbed RunUndisturbed(const KilledLayout& layout) {
  const std::string metrics = NewMetrics();
  const auto start = Clock::now();
  const ProgramResult result = RunProgram(kTrain, JobOf(layout, metrics));
  Undisturbed undisturbed;
  undisturbed.seconds = SecondsSince(start);
  const Events events = WholeEvents(metrics);
  if (result.exit_code != 0) return undisturbed;
  for (const nlohmann::json& event : EventsOf(events, "step")) {
    undisturbed.losses[event["step"]] = event["loss"];
  }
  undisturbed.weights_sha256 =
      EventsOf(events, "summary").back()["weights_sha256"];
  return undisturbed;
}

TrialEnd RunTrial(const Trial& trial, const Undisturbed& undisturbed) {
  constexpr int kMostRuns = 3;
  const std::string folder = NewFolder("kills");
  TrialEnd end;
  Events events;
  for (int exit_code = -1; exit_code != 0; ++end.runs) {
    if (end.runs == kMostRuns) {
      end.problem = absl::StrCat("it still ends with ", exit_code);
      return end;
    }
    const std::string metrics = NewMetrics();
    Program program(kTrain, SavedJobOf(trial, folder, metrics),
                    end.runs == 0 ? FaultOf(trial) : ProgramOptions());
    if (end.runs == 0 && trial.point.empty()) {
      std::this_thread::sleep_for(
          std::chrono::duration<double>(trial.moment * undisturbed.seconds));
      end.was_hit = Kill(trial, program);
    }
    const ProgramResult result = program.Wait();
    exit_code = result.exit_code;
    end.restarts += CountOf(result.err, "tandem: restart ");
    end.was_hit = end.was_hit || end.restarts > 0;
    for (const nlohmann::json& event : WholeEvents(metrics)) {
      events.push_back(event);
    }
    if (exit_code != 0 && trial.victim != Trial::Victim::kLauncher) {
      end.problem = absl::StrCat("exit code ", exit_code, ": ", result.err);
      return end;
    }
  }
  end.problem = CheckSteps(events, undisturbed);
  return end;
}

}  // namespace tandem
