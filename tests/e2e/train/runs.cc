#include "tests/e2e/train/runs.h"

#include <signal.h>

#include <algorithm>
#include <cmath>
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

ProgramResult EndOf(Program& program, int signal_number) {
  ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 128 + signal_number) << result.out << result.err;
  EXPECT_TRUE(program.LivingProcesses().empty());
  return result;
}

std::vector<double> LossesOf(const Events& events) {
  std::vector<double> losses;
  for (const char* kind : {"step", "eval"}) {
    for (const auto& event : EventsOf(events, kind)) {
      losses.push_back(event["loss"]);
    }
  }
  return losses;
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

Flags NodeFlags(int nodes, int node, int port) {
  return {"--nnodes=" + std::to_string(nodes),
          "--node_rank=" + std::to_string(node), "--nproc_per_node=1",
          "--master_addr=127.0.0.1", "--master_port=" + std::to_string(port)};
}

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

ProgramResult StopBySignal(Program& program, int signal_number) {
  program.Signal(signal_number);
  return EndOf(program, signal_number);
}

ProgramResult StopBySignalToRank(Program& program, int rank,
                                 int signal_number) {
  const pid_t pid = PidOfRank(program, rank);
  if (pid == 0 || kill(pid, signal_number) != 0) {
    ADD_FAILURE() << "rank " << rank << " cannot be sent a signal";
    return ProgramResult();
  }
  return EndOf(program, signal_number);
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

const std::vector<std::string>& PipelineModels() {
  static const auto* all = new std::vector<std::string>{
      "mlp_small", "gpt_tiny_tied", "unet_tiny", "mlp_dropout", "resnet18"};
  return *all;
}

Flags TinyJob(const std::string& model, const Flags& more) {
  Flags flags = SmallJob({"--model=" + model, "--batch_size=8",
                          "--synthetic_samples=32", "--synthetic_shape=3,8,8"});
  if (model == "gpt_tiny_tied") {
    flags =
        Joined(flags, {"--dataset=synthetic_tokens", "--synthetic_shape=8"});
  }
  if (model == "resnet18") flags.push_back("--synthetic_shape=3,32,32");
  return Joined(flags, more);
}

Flags Tiny(const std::string& model, const std::string& more) {
  return TinyJob(model, Words(more));
}

const std::vector<PipelinePlace>& PipelinePlaces() {
  static const auto* all = new std::vector<PipelinePlace>{
      {"2 devices", 2, {"--strategy=pipeline", "--devices_per_rank=2"}},
      {"2 simulated devices",
       2,
       {"--strategy=pipeline", "--devices_per_rank=2", "--device=sim"}},
      {"2 asynchronous devices",
       2,
       {"--strategy=pipeline", "--devices_per_rank=2", "--device=sim",
        "--sim_async", "--sim_delay_us=50", "--sim_delay_seed=7"}},
      {"2 ranks", 2, {"--strategy=pipeline", "--nproc_per_node=2", "--pipe=2"}},
      {"2 ranks over Gloo",
       2,
       {"--strategy=pipeline", "--nproc_per_node=2", "--pipe=2",
        "--backend=gloo"}},
      {"2 ranks with an asynchronous device each",
       2,
       {"--strategy=pipeline", "--nproc_per_node=2", "--pipe=2", "--device=sim",
        "--sim_async", "--sim_delay_us=50"}},
      {"2 ranks with 2 devices each",
       4,
       {"--strategy=pipeline", "--nproc_per_node=2", "--pipe=2",
        "--devices_per_rank=2"}},
      {"2 ranks with 2 asynchronous devices each",
       4,
       {"--strategy=pipeline", "--nproc_per_node=2", "--pipe=2",
        "--devices_per_rank=2", "--device=sim", "--sim_async",
        "--sim_delay_us=50"}},
  };
  return *all;
}

const PipelinePlace& PlaceNamed(const std::string& name) {
  for (const PipelinePlace& place : PipelinePlaces()) {
    if (place.name == name) return place;
  }
  ADD_FAILURE() << "no place is named " << name;
  std::abort();
}

double ExpectSameLosses(const Events& events, const Events& expected,
                        double tolerance, const std::string& name) {
  const std::vector<double> found = LossesOf(events);
  const std::vector<double> wanted = LossesOf(expected);
  EXPECT_EQ(found.size(), wanted.size()) << name;
  double worst = 0;
  for (size_t i = 0; i < std::min(found.size(), wanted.size()); ++i) {
    worst = std::max(worst, std::abs(found[i] - wanted[i]) / wanted[i]);
  }
  EXPECT_LE(worst, tolerance) << name;
  return worst;
}

void WriteText(const std::string& path, int words, uint32_t seed) {
  const char* const known[] = {"in ", "the ", "beginning ", "was ", "word "};
  std::string text;
  for (int i = 0; i < words; ++i) {
    seed = seed * 1664525 + 1013904223;
    text += known[(seed >> 16) % 5];
  }
  std::vector<uint16_t> tokens(text.begin(), text.end());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(2 * tokens.size()));
}

std::string NewText(const std::string& name) {
  const std::string folder = NewFolder(name);
  WriteText(folder + "/train.bin", 2000, 1);
  WriteText(folder + "/val.bin", 200, 2);
  return folder;
}

std::string NewTokens(const std::string& name) {
  const std::string folder = NewFolder(name);
  for (const char* file_name : {"/train.bin", "/val.bin"}) {
    std::ofstream file(folder + file_name, std::ios::binary);
    uint32_t seed = 5;
    for (int i = 0; i < 400; ++i) {
      seed = seed * 1664525 + 1013904223;
      const auto token = static_cast<uint16_t>((seed >> 16) % 32 / (1 + i % 3));
      file.write(reinterpret_cast<const char*>(&token), 2);
    }
  }
  return folder;
}

}  // namespace tandem
