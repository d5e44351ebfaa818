// Simulated devices end a job with the CPU's bits: every model, on one and on
// several devices and ranks, synchronous and not, or sharing one. The strategy
// that a job reports is the one that runs.

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::devices_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using Texts = std::vector<std::string>;
using Rows = std::vector<SameRow>;

const Texts kOnOneDevice = {"--device=sim",
                            "--device=sim --sim_async --sim_delay_us=50"};
const Texts kOnTwoDevices = {"--device=sim --devices_per_rank=2",
                             "--device=sim --devices_per_rank=2 --sim_async "
                             "--sim_delay_us=50 --sim_delay_seed=7"};

Texts AllSimulations() { return Joined(kOnOneDevice, kOnTwoDevices); }

const Texts kRanks = {"--nproc_per_node=1", "--nproc_per_node=2"};

// The help of --model lists them: "Network to train: cnn, ..., toy_mp."
Texts ModelsOfTheProgram() {
  const std::string help = RunProgram(kTrain, {"--help=model"}).out;
  const std::string before = "Network to train: ";
  const size_t begin = help.find(before);
  if (begin == std::string::npos) return {};
  std::istringstream words(help.substr(begin + before.size()));
  Texts models;
  for (std::string word; words >> word;) {
    models.push_back(word.substr(0, word.size() - 1));
    if (word.back() == '.') break;
  }
  return models;
}

std::string DataFor(const std::string& model) {
  if (model.find("gpt") == 0 || model.find("llama") == 0) {
    return "--dataset=synthetic_tokens --synthetic_shape=16";
  }
  if (model.substr(0, 3) == "toy") {
    return "--synthetic_shape=10 --synthetic_classes=5";
  }
  return "--synthetic_shape=3,32,32";
}

// A tiny model with other sizes, of which sixteen runs take minutes.
bool IsSized(const std::string& model) {
  const bool has_sizes = model == "gpt_baby" || model.find("gpt2") == 0 ||
                         model.find("llama") == 0 || model == "tinyllama" ||
                         model == "vit_b_16";
  return has_sizes && model.find("_tiny") == model.npos;
}

Rows ModelRows(const Texts& models) {
  Rows rows;
  for (const std::string& model : models) {
    const Flags job = Small(
        "--synthetic_samples=8 --batch_size=4 "
        "--max_steps=2 --model=" +
        model + " " + DataFor(model));
    rows.push_back({model, job, AllSimulations(), SameBits, kRanks});
    if (model.find("_tied") == model.npos) continue;
    // A tied weight's copies in two stages are averaged over ranks before their
    // gradients are added, where one tensor's are added before: the last bits
    // differ.
    rows.back().places = {kRanks[0]};
    rows.push_back(
        {model + " on 2 ranks", job, kOnOneDevice, SameBits, {kRanks[1]}});
    rows.push_back({model + " on 2 ranks of 2 devices",
                    job,
                    kOnTwoDevices,
                    SameLastLoss(1e-5),
                    {kRanks[1]}});
  }
  return rows;
}

TEST(SimTest, EveryModelEndsWithTheCpusBits) {
  Texts models = ModelsOfTheProgram();
  models.erase(std::remove_if(models.begin(), models.end(), IsSized),
               models.end());
  ASSERT_GE(models.size(), 10);
  const Rows rows = ModelRows(models);
  for (const SameRow& row : rows) ExpectSame(row);
  // Two of the tied models, whose losses alone are the same on two devices.
  EXPECT_EQ(rows.size(), models.size() + 2 * 2);
  EXPECT_EQ(CellsIn(rows), static_cast<int>(models.size()) * 8);
}

class DevicesTest : public testing::TestWithParam<SameRow> {};

TEST_P(DevicesTest, EndsWithTheSameBits) { ExpectSame(GetParam()); }

Rows RecipeRows() {
  const std::vector<std::pair<std::string, std::string>> recipes = {
      {"Accumulation", "--gradient_accumulation_steps=2"},
      {"ClippedNorm", "--clip_grad_norm=0.1"},
      {"ClippedValue", "--clip_grad_value=0.001"},
      {"AdamW",
       "--optimizer=adamw --weight_decay=0.1 --lr_schedule=cosine "
       "--lr_warmup_steps=3"},
      {"Nesterov",
       "--nesterov --weight_decay=0.01 --model=cnn "
       "--synthetic_shape=1,28,28 --synthetic_samples=48"}};
  Rows rows;
  for (const auto& [name, flags] : recipes) {
    rows.push_back({name, Small("--epochs=2 " + flags), AllSimulations(),
                    SameBits, kRanks});
  }
  rows.push_back({"SeveralDevicesOfEachRankAreAReplicas",
                  Small("--nproc_per_node=2"),
                  {kOnTwoDevices[0]},
                  Both(SameBits, HasStrategy("ddp", "ddp"))});
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Recipe, DevicesTest, testing::ValuesIn(RecipeRows()),
                         RowName<SameRow>);

// Ranks, and devices of a rank, that share one simulated device: as on one GPU.
void OnOneDevice(const JobRun& shared, const JobRun& apart) {
  SameBits(shared, apart);
  const nlohmann::json summary = EventsOf(shared.events, "summary").back();
  EXPECT_THAT(summary.dump(), HasSubstr("sim:0"));
  EXPECT_THAT(summary.dump(), Not(HasSubstr("sim:1")));
}

Rows SharingRows() {
  const std::vector<std::pair<std::string, std::string>> layouts = {
      {"Replicas", "--nproc_per_node=2"},
      {"ModelParallel", "--devices_per_rank=2"},
      {"Pipeline", "--devices_per_rank=2 --strategy=pipeline"},
      {"PipelineOnStreams",
       "--devices_per_rank=2 --strategy=pipeline "
       "--sim_async --sim_delay_us=50"},
      {"PipelineOfRanks", "--nproc_per_node=2 --pipe=2 --strategy=pipeline"},
      {"DataParallel", "--devices_per_rank=2 --strategy=data_parallel"}};
  Rows rows;
  for (const auto& [name, flags] : layouts) {
    rows.push_back({name,
                    Small("--device=sim " + flags),
                    {"--share_devices"},
                    OnOneDevice});
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Sharing, DevicesTest, testing::ValuesIn(SharingRows()),
                         RowName<SameRow>);

// Each layout, and the strategy that it is to report: given back, that name
// runs the same.
Rows StrategyRows() {
  const char* const layouts[][3] = {
      {"OneRank", "", "single"},
      {"TwoRanks", "--nproc_per_node=2", "ddp"},
      {"TwoDevices", "--devices_per_rank=2", "model_parallel"},
      {"TwoReplicasInARank", "--devices_per_rank=2 --strategy=data_parallel",
       "data_parallel"},
      {"TwoRanksOfTwoDevices", "--nproc_per_node=2 --devices_per_rank=2",
       "ddp"},
      {"TwoRanksAlongAPipeline", "--nproc_per_node=2 --pipe=2", "pipeline"},
      // Buckets are for the replicas, of which there are two.
      {"TwoPipelines", "--nproc_per_node=4 --pipe=2 --bucket_cap_mb=0.01",
       "hybrid"},
      {"ReplicasInMicrobatches", "--nproc_per_node=2 --strategy=hybrid",
       "hybrid"},
      {"ReplicasOfDevicesInMicrobatches",
       "--nproc_per_node=2 --strategy=hybrid --devices_per_rank=2", "hybrid"},
      {"Reproducible", "--nproc_per_node=2 --reproducible --microbatch_size=4",
       "ddp"}};
  Rows rows;
  for (const auto& [name, flags, strategy] : layouts) {
    rows.push_back({name,
                    Small(std::string("--max_steps=2 ") + flags),
                    {std::string("--strategy=") + strategy},
                    Both(SameBits, HasStrategy(strategy, strategy))});
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Strategy, DevicesTest,
                         testing::ValuesIn(StrategyRows()), RowName<SameRow>);

class SimResumeTest : public testing::TestWithParam<ResumeRow> {};

TEST_P(SimResumeTest, ACheckpointOfTwoDevicesGoesOnOnTheCpu) {
  ExpectGoesOn(GetParam());
}

// Six steps an epoch; step 4 is in the middle of the first.
std::vector<ResumeRow> ResumeRows() {
  std::vector<ResumeRow> rows;
  for (const auto& [name, flags] :
       {std::pair("Sgd", ""),
        std::pair("AdamW", "--optimizer=adamw --nproc_per_node=2")}) {
    rows.push_back({name,
                    Small(std::string("--epochs=2 ") + flags),
                    {"--device=sim --devices_per_rank=2"},
                    "--save_every=4",
                    {4},
                    {"", "--device=sim --devices_per_rank=4"},
                    /*saver_is_straight=*/true});
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(All, SimResumeTest, testing::ValuesIn(ResumeRows()),
                         RowName<ResumeRow>);

TEST(DevicesTableTest, NoCellIsMissing) {
  EXPECT_EQ(CellsIn(RecipeRows()), 5 * 8 + 1);
  EXPECT_EQ(CellsIn(SharingRows()), 6);
  EXPECT_EQ(CellsIn(StrategyRows()), 10);
  EXPECT_EQ(CellsIn(ResumeRows()), 2 * 2);
}

TEST(SimTest, Resnet18OnTwoDevicesTrainsToTheCpusBits) {
  const Flags job = Small(
      "--model=resnet18 --synthetic_shape=3,32,32 --synthetic_samples=32 "
      "--batch_size=8 --epochs=2");
  const JobRun& cpu = RunOnce(job);
  const JobRun& sim = RunOnce(Joined(job, Words(kOnTwoDevices[0])));
  SameLines(sim, cpu);
  EXPECT_EQ(sim.events.front()["strategy"], "model_parallel");
  const Events cpu_steps = EventsOf(cpu.events, "step");
  const Events sim_steps = EventsOf(sim.events, "step");
  ASSERT_EQ(sim_steps.size(), 8);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(sim_steps[i]["accuracy"], cpu_steps[i]["accuracy"]) << i;
  }
  EXPECT_EQ(EventsOf(sim.events, "eval")[1]["loss"],
            EventsOf(cpu.events, "eval")[1]["loss"]);
  EXPECT_THAT(sim.program.out, HasSubstr("peak on sim:1"));
}

// mlp_small: flatten (0), fc1 (1), relu1 (2), ...
TEST(SimTest, ACutByNameIsTheCutByIndex) {
  const std::string cpu = Fingerprint(RunJobForEvents(SmallJob()));
  const auto cut = [](const std::string& where) {
    return RunJobForEvents(
        Small("--device=sim --devices_per_rank=3 --balance=" + where));
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

}  // namespace
}  // namespace tandem::devices_test
