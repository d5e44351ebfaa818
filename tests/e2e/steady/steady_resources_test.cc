// Long jobs of every strategy: after their first steps, the memory, the threads
// and the descriptors of each of their processes stay as they are.

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <map>
#include <ostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/config.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/e2e/program.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

constexpr int kSteps = 3500;
// An epoch has 60 steps, and ends with a save and an evaluation: enough of them
// to show a leak, few beside the steps.
constexpr char kSamples[] = "--synthetic_samples=960";
// The job is looked at six times, each time between two checkpoints and well
// behind the first one: by then nearly all that is made once has been made.
constexpr int kSaveEvery = 400;
constexpr int kFirstLook = 500;
constexpr int kLookEvery = kSaveEvery;
constexpr int kLastLook = 2500;
// The most that the memory may grow between two looks, in the median: a KiB a
// step. Memory that is first needed late, or that an allocator keeps for later,
// is part of one or two of the five growths; a leak is part of all.
constexpr int64_t kMemoryKib = 400;
// A sanitizer keeps what is freed, and notes on what is used: memory grows. And
// it takes its time.
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
constexpr std::chrono::seconds kTimeout(kSanitized ? 900 : 240);
// Threads and files come and go for a moment: the least of some looks counts,
// and later there are more of them to find it.
constexpr int kEarlyLooks = 20;
constexpr int kLateLooks = 100;
// A thread that is made at its first need, late, and kept is no leak: a leak of
// one in each checkpoint, or more often, is five threads and more.
constexpr int kMadeLate = 1;

struct Resources {
  int64_t memory_kib = 0;
  int threads = 0;
  int descriptors = 0;
};

int EntriesOf(const std::string& folder) {
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) return 0;
  int count = 0;
  while (readdir(entries) != nullptr) ++count;
  closedir(entries);
  return count;
}

// Memory is what is the process's own: pages of files that more of it has
// touched, and those it shares with other ranks, are no leak.
Resources ResourcesOf(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  Resources found;
  std::istringstream status(FileContents(folder + "/status"));
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name == "RssAnon:") words >> found.memory_kib;
    if (name == "Threads:") words >> found.threads;
  }
  found.descriptors = EntriesOf(folder + "/fd");
  return found;
}

std::map<pid_t, Resources> LeastOf(const Program& program, int looks) {
  std::map<pid_t, Resources> all;
  for (int look = 0; look < looks; ++look) {
    for (const pid_t pid : program.LivingProcesses()) {
      const Resources now = ResourcesOf(pid);
      if (now.memory_kib == 0) continue;  // it has just ended
      Resources& least = all.emplace(pid, now).first->second;
      least.memory_kib = std::min(least.memory_kib, now.memory_kib);
      least.threads = std::min(least.threads, now.threads);
      least.descriptors = std::min(least.descriptors, now.descriptors);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return all;
}

// The last of the steps that the job has told of.
int LastStep(const std::string& metrics) {
  std::ifstream file(metrics);
  int last = 0;
  for (std::string line; std::getline(file, line);) {
    const auto event = nlohmann::json::parse(line, nullptr, false);
    // The last line may be half there.
    if (event.is_object() && event.value("event", "") == "step") {
      last = event.value("step", last);
    }
  }
  return last;
}

// False if the job ends before.
bool AwaitStep(const Program& program, const std::string& metrics, int step) {
  while (LastStep(metrics) < step) {
    if (program.LivingProcesses().empty()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

// From the first to the last.
std::vector<int64_t> GrowthsOf(const std::vector<int64_t>& memory_kib) {
  std::vector<int64_t> growths;
  for (size_t i = 1; i < memory_kib.size(); ++i) {
    growths.push_back(memory_kib[i] - memory_kib[i - 1]);
  }
  return growths;
}

int64_t MedianOf(std::vector<int64_t> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Cell {
  std::string name;
  Flags flags;
};

// For GoogleTest.
void PrintTo(const Cell& cell, std::ostream* out) { *out << cell.name; }

std::vector<Cell> Cells() {
  const std::string ranks = "--nproc_per_node=2";
  const std::string devices = "--devices_per_rank=2";
  return {
      {"single", {}},
      {"single_simulated_async", {"--device=sim", "--sim_async"}},
      {"ddp_shm", {ranks}},
      {"ddp_gloo", {ranks, "--backend=gloo"}},
      {"ddp_sharded",
       {ranks, "--optimizer=adamw", "--shard=optimizer", "--dtype=bf16"}},
      {"data_parallel", {"--strategy=data_parallel", devices}},
      {"model_parallel", {"--strategy=model_parallel", devices}},
      {"pipeline_devices",
       {"--strategy=pipeline", devices, "--microbatches=4",
        "--schedule=zb_h1"}},
      {"pipeline_ranks", {ranks, "--pipe=2", "--microbatches=4"}},
      {"hybrid_devices",
       {"--strategy=hybrid", ranks, devices, "--microbatches=2"}},
      {"hybrid_sim_nccl",
       {"--strategy=hybrid", ranks, devices, "--microbatches=2", "--device=sim",
        "--backend=sim_nccl"}},
  };
}

void AppendGrowth(std::string* out, int64_t growth) {
  absl::StrAppendFormat(out, " %+d", growth);
}

class SteadyResourcesTest : public testing::TestWithParam<Cell> {};

TEST_P(SteadyResourcesTest, NothingGrows) {
  const std::string folder = NewFolder("steady_" + GetParam().name);
  const std::string metrics = folder + "/metrics.jsonl";
  const Flags job = SmallJob(
      {kSamples, "--epochs=1000", "--max_steps=" + std::to_string(kSteps),
       "--log_every=20", "--metrics_file=" + metrics, "--learning_rate=0.001",
       "--save_dir=" + folder + "/saved",
       "--save_every=" + std::to_string(kSaveEvery), "--async_save",
       "--keep_last=2"});
  ProgramOptions options;
  options.timeout = kTimeout;
  // One arena of malloc: every arena of a thread comes to need the same memory
  // once, at a time that depends on which thread does what.
  options.environment = {{"MALLOC_ARENA_MAX", "1"}};
  Program program(kTrain, Joined(job, GetParam().flags), options);
  std::map<pid_t, std::vector<int64_t>> memory_kib;
  std::map<pid_t, Resources> early, late;
  for (int step = kFirstLook; step <= kLastLook; step += kLookEvery) {
    ASSERT_TRUE(AwaitStep(program, metrics, step)) << program.Wait().err;
    late = LeastOf(program, step == kLastLook ? kLateLooks : kEarlyLooks);
    if (early.empty()) early = late;
    for (const auto& [pid, now] : late) {
      memory_kib[pid].push_back(now.memory_kib);
    }
  }
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;

  ASSERT_FALSE(early.empty());
  ASSERT_EQ(early.size(), late.size());
  for (const auto& [pid, then] : early) {
    ASSERT_EQ(late.count(pid), 1);
    const Resources& now = late.at(pid);
    const std::vector<int64_t> growths = GrowthsOf(memory_kib.at(pid));
    std::cout << GetParam().name << ": memory " << then.memory_kib << " KiB"
              << absl::StrJoin(growths, "", AppendGrowth) << ", threads "
              << then.threads << " -> " << now.threads << ", descriptors "
              << then.descriptors << " -> " << now.descriptors << "\n";
    if (!kSanitized) {
      EXPECT_LE(MedianOf(growths), kMemoryKib);
    }
    EXPECT_LE(now.threads, then.threads + kMadeLate);
    EXPECT_LE(now.descriptors, then.descriptors);
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, SteadyResourcesTest, testing::ValuesIn(Cells()),
                         [](const testing::TestParamInfo<Cell>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace tandem
