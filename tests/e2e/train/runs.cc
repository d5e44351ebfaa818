#include "tests/e2e/train/runs.h"

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

// The variable's value, "0" without it.
std::string NumberOf(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? "0" : text;
}

}  // namespace

Flags TestBackendFlags(const Flags& usual) {
  const char* const backend = std::getenv("TANDEM_TEST_BACKEND");
  if (backend == nullptr) return usual;
  EXPECT_STREQ(backend, "sim_nccl");  // what these devices are for
  return {"--backend=sim_nccl", "--device=sim", "--sim_async",
          "--sim_delay_us=" + NumberOf("TANDEM_SIM_ASYNC"),
          "--sim_delay_seed=" + NumberOf("TANDEM_SIM_SEED")};
}

Flags SmallJob(const Flags& more) {
  const Flags flags = {"--model=mlp_small",       "--dataset=synthetic",
                       "--synthetic_shape=1,8,8", "--synthetic_samples=96",
                       "--batch_size=16",         "--intra_op_threads=1",
                       "--log_every=1",           "--save_dir="};
  return Joined(Joined(flags, TestBackendFlags()), more);
}

Flags Joined(Flags first, const Flags& second, const Flags& third) {
  first.insert(first.end(), second.begin(), second.end());
  first.insert(first.end(), third.begin(), third.end());
  return first;
}

Flags Words(const std::string& text) {
  return absl::StrSplit(text, ' ', absl::SkipEmpty());
}

std::string Typed(const Flags& flags) { return absl::StrJoin(flags, " "); }

Flags Small(const std::string& more) { return SmallJob(Words(more)); }

pid_t PidOfRank(const Program& program, int rank) {
  const std::string variable =
      std::string(1, '\0') + "RANK=" + std::to_string(rank) + '\0';
  for (const pid_t pid : program.LivingProcesses()) {
    const std::string environment =
        FileContents("/proc/" + std::to_string(pid) + "/environ");
    if (environment.find(variable) != std::string::npos) return pid;
  }
  return 0;
}

Events ReadEvents(const std::string& path) {
  Events events;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    events.push_back(nlohmann::json::parse(line));
  }
  return events;
}

Events EventsOf(const Events& events, const std::string& kind) {
  Events some;
  for (const nlohmann::json& event : events) {
    if (event["event"] == kind) some.push_back(event);
  }
  return some;
}

Events RunJobForEvents(Flags flags, ProgramResult* program,
                       const ProgramOptions& options) {
  const std::string metrics = NewFolder("metrics") + "/metrics.jsonl";
  flags.push_back("--metrics_file=" + metrics);
  const ProgramResult result = RunProgram(kTrain, flags, options);
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  if (program != nullptr) *program = result;
  return ReadEvents(metrics);
}

std::vector<int> StepsOf(const Events& events) {
  std::vector<int> steps;
  for (const nlohmann::json& step : EventsOf(events, "step")) {
    steps.push_back(step["step"]);
  }
  return steps;
}

std::vector<double> StepLosses(const Events& events) {
  std::vector<double> losses;
  for (const nlohmann::json& step : EventsOf(events, "step")) {
    losses.push_back(step["loss"]);
  }
  return losses;
}

double LastLoss(const Events& events) {
  return EventsOf(events, "step").back()["loss"];
}

std::string SavedStep(const std::string& folder, int step) {
  return absl::StrFormat("%s/step-%09d", folder, step);
}

ProgramOptions FaultOf(const std::string& fault) {
  ProgramOptions options;
  options.environment["TANDEM_FAULT"] = fault;
  return options;
}

std::string Fingerprint(const Events& events) {
  const Events summaries = EventsOf(events, "summary");
  EXPECT_EQ(summaries.size(), 1);
  if (summaries.empty()) return "";
  return summaries[0]["weights_sha256"];
}

}  // namespace tandem
