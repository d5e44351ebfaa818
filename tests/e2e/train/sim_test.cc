// Simulated devices end a job with the CPU's bits: every model, on one and on
// several devices and ranks, synchronous and not.

#include <algorithm>
#include <iostream>
#include <iterator>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

// A way to run a job on simulated devices.
struct Simulation {
  std::string name;
  Flags flags;
};

const std::vector<Simulation>& Simulations() {
  static const auto* all = new std::vector<Simulation>{
      {"one device", {"--device=sim"}},
      {"one device, asynchronous",
       {"--device=sim", "--sim_async", "--sim_delay_us=50"}},
      {"two devices", {"--device=sim", "--devices_per_rank=2"}},
      {"two devices, asynchronous",
       {"--device=sim", "--devices_per_rank=2", "--sim_async",
        "--sim_delay_us=50", "--sim_delay_seed=7"}},
  };
  return *all;
}

bool IsCut(const Simulation& simulation) {
  return simulation.name.find("two devices") == 0;
}

// Runs `job` on the CPU and on each simulation, on so many ranks, and expects
// the same bits. Returns how many simulations were compared: with `cuts` false,
// those of one device.
int ExpectCpusBits(const std::string& name, Flags job, int ranks,
                   bool cuts = true) {
  job.push_back("--nproc_per_node=" + std::to_string(ranks));
  const std::string cpu = Fingerprint(RunJobForEvents(job));
  EXPECT_EQ(cpu.size(), 64) << name;
  int cells = 0;
  for (const Simulation& simulation : Simulations()) {
    if (!cuts && IsCut(simulation)) continue;
    const Events events = RunJobForEvents(Joined(job, simulation.flags));
    const std::string found = Fingerprint(events);
    EXPECT_EQ(found, cpu) << name << ", " << simulation.name << ", " << ranks
                          << " ranks";
    std::cout << (found == cpu ? "same bits  " : "OTHER BITS ") << name << ", "
              << simulation.name << ", " << ranks
              << (ranks == 1 ? " rank: " : " ranks: ")
              << events.front().value("strategy", "") << "\n";
    ++cells;
  }
  return cells;
}

double LastLoss(const Events& events) {
  return EventsOf(events, "step").back()["loss"];
}

// A tied weight's copies in two stages are averaged over ranks before their
// gradients are added, where one tensor's are added before: the last bits
// differ.
void ExpectCpusLossOnTwoDevices(Flags job) {
  job.push_back("--nproc_per_node=2");
  const double cpu = LastLoss(RunJobForEvents(job));
  for (const Simulation& simulation : Simulations()) {
    if (!IsCut(simulation)) continue;
    EXPECT_NEAR(LastLoss(RunJobForEvents(Joined(job, simulation.flags))), cpu,
                1e-5 * cpu)
        << simulation.name;
  }
}

// Those that the program has, as it lists them for whoever asks for another.
std::vector<std::string> ModelsOfTheProgram() {
  const std::string error =
      RunProgram(kTrain, SmallJob({"--model=none_such"})).err;
  const std::string before = "choose one of ";
  const size_t begin = error.find(before);
  if (begin == std::string::npos) return {};
  std::string names = error.substr(begin + before.size());
  names.erase(std::remove(names.begin(), names.end(), ','), names.end());
  std::istringstream words(names);
  return {std::istream_iterator<std::string>(words), {}};
}

Flags DataFor(const std::string& model) {
  if (model.find("gpt") == 0 || model.find("llama") == 0) {
    return {"--dataset=synthetic_tokens", "--synthetic_shape=16"};
  }
  if (model.substr(0, 3) == "toy") {
    return {"--synthetic_shape=10", "--synthetic_classes=5"};
  }
  return {"--synthetic_shape=3,32,32"};
}

TEST(SimTest, EveryModelEndsWithTheCpusBits) {
  std::vector<std::string> models = ModelsOfTheProgram();
  // The tiny ones with other sizes, of which sixteen runs take minutes.
  models.erase(
      std::remove_if(models.begin(), models.end(),
                     [](const std::string& model) {
                       const bool is_sized =
                           model == "gpt_baby" || model.find("gpt2") == 0 ||
                           model.find("llama") == 0 || model == "tinyllama" ||
                           model == "vit_b_16";
                       return is_sized && model.find("_tiny") == model.npos;
                     }),
      models.end());
  ASSERT_GE(models.size(), 10);
  int cells = 0;
  for (const std::string& model : models) {
    const Flags job =
        Joined(SmallJob({"--model=" + model, "--synthetic_samples=8",
                         "--batch_size=4", "--max_steps=2"}),
               DataFor(model));
    const bool is_tied = model.find("_tied") != model.npos;
    for (const int ranks : {1, 2}) {
      cells += ExpectCpusBits(model, job, ranks,
                              /*cuts=*/!is_tied || ranks == 1);
    }
    if (is_tied) ExpectCpusLossOnTwoDevices(job);
  }
  std::cout << cells << " cells: " << models.size()
            << " models, 4 simulations, 1 and 2 ranks\n";
  EXPECT_EQ(cells, models.size() * 8 - 4);  // the tied ones on 2 ranks
}

struct Recipe {
  std::string name;
  Flags flags;
};

class RecipeTest : public testing::TestWithParam<Recipe> {};

TEST_P(RecipeTest, EndsWithTheCpusBits) {
  const Flags job = Joined(SmallJob({"--epochs=2"}), GetParam().flags);
  for (const int ranks : {1, 2}) {
    EXPECT_EQ(ExpectCpusBits(GetParam().name, job, ranks), 4);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RecipeTest,
    testing::Values(Recipe{"Accumulation", {"--gradient_accumulation_steps=2"}},
                    Recipe{"ClippedNorm", {"--clip_grad_norm=0.1"}},
                    Recipe{"ClippedValue", {"--clip_grad_value=0.001"}},
                    Recipe{"AdamW",
                           {"--optimizer=adamw", "--weight_decay=0.1",
                            "--lr_schedule=cosine", "--lr_warmup_steps=3"}},
                    Recipe{"Nesterov",
                           {"--nesterov", "--weight_decay=0.01", "--model=cnn",
                            "--synthetic_shape=1,28,28",
                            "--synthetic_samples=48"}}),
    [](const auto& info) { return info.param.name; });

TEST(SimTest, Resnet18OnTwoDevicesTrainsToTheCpusBits) {
  const Flags job =
      SmallJob({"--model=resnet18", "--synthetic_shape=3,32,32",
                "--synthetic_samples=32", "--batch_size=8", "--epochs=2"});
  const Events cpu = RunJobForEvents(job);
  ProgramResult program;
  const Events sim = RunJobForEvents(
      Joined(job, {"--device=sim", "--devices_per_rank=2"}), &program);
  EXPECT_EQ(Fingerprint(sim), Fingerprint(cpu));
  EXPECT_EQ(sim.front()["strategy"], "model_parallel");
  const Events cpu_steps = EventsOf(cpu, "step");
  const Events sim_steps = EventsOf(sim, "step");
  ASSERT_EQ(sim_steps.size(), 8);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(sim_steps[i]["loss"], cpu_steps[i]["loss"]) << i;
    EXPECT_EQ(sim_steps[i]["accuracy"], cpu_steps[i]["accuracy"]) << i;
  }
  EXPECT_EQ(EventsOf(sim, "eval")[1]["loss"], EventsOf(cpu, "eval")[1]["loss"]);
  EXPECT_THAT(program.out, HasSubstr("peak on sim:1"));
}

TEST(SimTest, SeveralDevicesOfEachRankAreAReplicas) {
  const Flags job = SmallJob({"--nproc_per_node=2"});
  const Events cpu = RunJobForEvents(job);
  const Events sim =
      RunJobForEvents(Joined(job, {"--device=sim", "--devices_per_rank=2"}));
  EXPECT_EQ(cpu.front()["strategy"], "ddp");
  EXPECT_EQ(sim.front()["strategy"], "ddp");
  EXPECT_EQ(Fingerprint(sim), Fingerprint(cpu));
}

// mlp_small: flatten (0), fc1 (1), relu1 (2), ...
TEST(SimTest, ACutByNameIsTheCutByIndex) {
  const std::string cpu = Fingerprint(RunJobForEvents(SmallJob()));
  const auto cut = [](const std::string& where) {
    return RunJobForEvents(
        SmallJob({"--device=sim", "--devices_per_rank=3", "--cut=" + where}));
  };
  const Events by_name = cut("fc2,fc8");
  const Events by_index = cut("3,15");
  const Events elsewhere = cut("fc3,fc8");
  const auto memory = [](const Events& events) {
    return events.back()["device_memory"];
  };
  EXPECT_EQ(memory(by_name), memory(by_index));
  EXPECT_NE(memory(by_name), memory(elsewhere));
  EXPECT_EQ(Fingerprint(by_name), cpu);
  EXPECT_EQ(Fingerprint(by_index), cpu);
  EXPECT_EQ(Fingerprint(elsewhere), cpu);
}

// Six steps an epoch; step 4 is in the middle of the first.
TEST(SimTest, ACheckpointOfTwoDevicesGoesOnOnTheCpu) {
  for (const Flags& more :
       {Flags{}, Flags{"--optimizer=adamw", "--nproc_per_node=2"}}) {
    const Flags job = Joined(SmallJob({"--epochs=2"}), more);
    const std::string folder = NewFolder("from_sim");
    const Flags on_two = {"--device=sim", "--devices_per_rank=2"};
    const Events straight = RunJobForEvents(Joined(
        Joined(job, on_two), {"--save_dir=" + folder, "--save_every=4"}));
    const Flags resume = {"--resume=" + folder + "/step-000000004"};
    const Events on_cpu = RunJobForEvents(Joined(job, resume));
    EXPECT_EQ(EventsOf(on_cpu, "step").front()["step"], 5);
    EXPECT_EQ(Fingerprint(on_cpu), Fingerprint(straight));
    const Events on_sim = RunJobForEvents(
        Joined(Joined(job, resume), {"--device=sim", "--devices_per_rank=4"}));
    EXPECT_EQ(Fingerprint(on_sim), Fingerprint(straight));
  }
}

}  // namespace
}  // namespace tandem
