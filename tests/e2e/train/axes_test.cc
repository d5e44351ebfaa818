// Jobs whose ranks share layers (--tensor) or parameters (--shard), beside
// replicas and pipelines, on shm, gloo and sim_nccl: they train what one device
// trains, and go on in any other mesh.

#include <cmath>
#include <cstddef>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/axes_cells.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"
#include "tests/parallel/matrix/pairwise.h"

namespace tandem::axes_test {
namespace {

using ::testing::HasSubstr;

// Adam's eps is large, so that a gradient of nearly 0 decides nothing.
Flags Job(const std::string& more) {
  return Joined(
      Words("--dataset=synthetic_tokens --save_dir= --log_every=1 --context=24 "
            "--synthetic_samples=192 --batch_size=24 --optimizer=adamw "
            "--adam_eps=0.01 --learning_rate=0.01 --max_steps=3 "
            "--intra_op_threads=1"),
      Words(more));
}

Flags Job(const std::string& model, const std::string& more) {
  return Job("--model=" + model + " " + more);
}

// Losses are means of fp32 numbers, relative to them. A sum in another order
// differs by some units in the last place, 6e-8 each, and steps carry this on.
constexpr double kRounding = 1e-6;

constexpr size_t kSensible = 10068;
constexpr size_t kCover = 25;  // the presubmit's
constexpr size_t kPairs = 420;
constexpr size_t kProduct = 1050;

class AxesTest : public testing::TestWithParam<AxesCell> {};

TEST_P(AxesTest, TrainWhatOneDeviceTrains) {
  const AxesCell& cell = GetParam();
  const std::string job = JobOf(cell);
  const JobRun& alone = RunOnce(Job(job));
  const JobRun& run =
      RunOnce(Job(absl::StrCat(job, " ", MeshOf(cell), " ", BackendOf(cell))));
  EXPECT_GE(StepLosses(run.events).size(), 3u);
  SameLosses(kRounding)(run, alone);
}

std::string CellName(const testing::TestParamInfo<AxesCell>& info) {
  return NameOf(info.param);
}

INSTANTIATE_TEST_SUITE_P(Cover, AxesTest,
                         testing::ValuesIn(CoverOf(SensibleAxesCells())),
                         CellName);
INSTANTIATE_TEST_SUITE_P(All, AxesTest, testing::ValuesIn(AxesProduct()),
                         CellName);

std::vector<Combination> SettingsOf(const std::vector<AxesCell>& cells) {
  std::vector<Combination> settings;
  for (const AxesCell& each : cells) settings.push_back(SettingsOf(each));
  return settings;
}

TEST(AxesCellsTest, NoneIsMissing) {
  EXPECT_EQ(AxesMeshes().size(), 50u);
  std::map<std::string, int> reasons;
  for (const AxesCell& each : AllAxesCells()) ++reasons[WhyNot(each)];
  for (const auto& [why, count] : reasons) {
    std::cout << count << " cells: " << (why.empty() ? "make sense" : why)
              << "\n";
  }
  EXPECT_EQ(reasons.size(), 6u);
  const std::vector<AxesCell> sensible = SensibleAxesCells();
  const std::vector<AxesCell> cover = CoverOf(sensible);
  const std::vector<AxesCell> product = AxesProduct();
  const size_t pairs = CountPairs(SettingsOf(sensible));
  std::cout << cover.size() << " cells cover " << pairs
            << " pairs of settings; the product has " << product.size()
            << " cells\n";
  EXPECT_EQ(sensible.size(), kSensible);
  EXPECT_EQ(pairs, kPairs);
  EXPECT_EQ(CountPairs(SettingsOf(cover)), pairs);
  EXPECT_EQ(CountPairs(SettingsOf(product)), pairs);
  EXPECT_EQ(cover.size(), kCover);
  EXPECT_EQ(product.size(), kProduct);
}

// A learning rate that is one hundredth off is seen.
TEST(AxesTest, AMistakeGoesBeyondTheRounding) {
  for (const std::string model : {"gpt_tiny", "llama_tiny"}) {
    const JobRun& right = RunOnce(Job(model, ""));
    const JobRun& wrong = RunOnce(Job(model, "--learning_rate=0.0101"));
    const double loss = LastLoss(right.events);
    EXPECT_GT(std::abs(LastLoss(wrong.events) - loss), 10 * kRounding * loss)
        << model;
  }
}

struct Mesh {
  std::string name;
  int ranks;
  std::string flags;
};

std::string FlagsOf(const Mesh& mesh) {
  return absl::StrCat("--nproc_per_node=", mesh.ranks, " ", mesh.flags);
}

// Stages and devices that the product does not have, on each backend.
struct StagedCell {
  Mesh mesh;
  std::string model;
  std::string backend;
};

std::vector<StagedCell> StagedCells() {
  const std::vector<Mesh> meshes = {
      {"Pipe2Shard2OfWholeStages", 4,
       "--pipe=2 --schedule=looped_bfs --chunks=2 --shard=parameters "
       "--noreshard_after_forward --max_unsharded_stages=1"},
      {"Tensor2OfTwoDevices", 2,
       "--tensor=2 --devices_per_rank=2 --strategy=pipeline"},
      {"Pipe2Tensor2OfTwoDevices", 4,
       "--pipe=2 --tensor=2 --devices_per_rank=2 --strategy=pipeline"},
  };
  std::vector<StagedCell> cells;
  for (const Mesh& mesh : meshes) {
    for (const char* model :
         {"gpt_tiny", "gpt_tiny_tied", "llama_tiny", "llama_tiny_tied"}) {
      for (const std::string& backend : AxesBackends()) {
        cells.push_back({mesh, model, backend});
      }
    }
  }
  return cells;
}

TEST(StagedAxesCellsTest, NoneIsMissing) {
  std::cout << StagedCells().size() << " cells\n";
  EXPECT_EQ(StagedCells().size(), 36u);
}

class StagedAxesTest : public testing::TestWithParam<StagedCell> {};

TEST_P(StagedAxesTest, TrainWhatOneDeviceTrains) {
  const auto& [mesh, model, backend] = GetParam();
  const std::string job = "--clip_grad_norm=0.5 --ema_decay=0.9 ";
  SameLosses(kRounding)(
      RunOnce(Job(
          model, absl::StrCat(job, FlagsOf(mesh), " ", BackendFlags(backend)))),
      RunOnce(Job(model, job)));
}

INSTANTIATE_TEST_SUITE_P(All, StagedAxesTest, testing::ValuesIn(StagedCells()),
                         [](const auto& info) {
                           return absl::StrCat(info.param.mesh.name, "_",
                                               info.param.model, "_",
                                               info.param.backend);
                         });

// Meshes from which jobs go on, and in which.
std::vector<Mesh> ResumedMeshes() {
  return {
      {"One", 1, ""},
      {"Tensor2", 2, "--tensor=2"},
      {"Shard2", 2, "--shard=parameters"},
      {"Pipe2Tensor2", 4, "--tensor=2 --pipe=2 --schedule=zb_h1"},
      {"Shard2Tensor2", 4, "--tensor=2 --shard=parameters"},
  };
}

class ResumedAxesTest : public testing::TestWithParam<Mesh> {};

TEST_P(ResumedAxesTest, GoesOnInEveryOther) {
  const std::string folder = NewFolder("axes_" + GetParam().name);
  const std::string six = "--max_steps=6 --learning_rate=0.01 --epochs=2 ";
  const Flags straight = Job("gpt_tiny_tied", six);
  const JobRun& expected = RunOnce(straight);
  RunJobForEvents(
      Joined(straight, Words(FlagsOf(GetParam()) + " --max_steps=3"),
             {"--save_dir=" + folder, "--learning_rate=0.01", "--epochs=2"}));
  int resumed = 0;
  for (const Mesh& mesh : ResumedMeshes()) {
    SCOPED_TRACE(mesh.name);
    const Events events = RunJobForEvents(
        Joined(straight, Words(FlagsOf(mesh)),
               {"--save_dir=", "--resume=" + SavedStep(folder, 3)}));
    EXPECT_EQ(StepsOf(events), (std::vector<int>{4, 5, 6}));
    EXPECT_NEAR(LastLoss(events), LastLoss(expected.events), 1e-3);
    ++resumed;
  }
  EXPECT_EQ(resumed, 5);
}

INSTANTIATE_TEST_SUITE_P(All, ResumedAxesTest,
                         testing::ValuesIn(ResumedMeshes()),
                         [](const auto& info) { return info.param.name; });

// The first ranks have a row of the vocabulary more.
TEST(AxesTest, TheVocabularyMayBeOfAnySize) {
  const std::string sizes =
      "--layers=1 --width=32 --heads=2 --max_steps=2 --eval_batches=1 "
      "--context=12 --batch_size=12 --synthetic_samples=48 ";
  const JobRun& alone = RunOnce(Job("gpt2", sizes));
  for (const std::string mesh :
       {"--nproc_per_node=2 --tensor=2",
        "--nproc_per_node=4 --tensor=2 --pipe=2",
        "--nproc_per_node=4 --tensor=2 --shard=parameters"}) {
    SCOPED_TRACE(mesh);
    SameLosses(2e-4)(RunOnce(Job("gpt2", sizes + mesh)), alone);
  }
}

// Cuts and microbatches are chosen by what one rank has of the layers.
TEST(AxesTest, LayersAreMeasuredAsTheirRanksShareThem) {
  ProgramResult said;
  const Events events = RunJobForEvents(
      Job("gpt_tiny",
          "--nproc_per_node=4 --tensor=2 --pipe=2 --balance=profile "
          "--microbatches=auto"),
      &said);
  EXPECT_THAT(said.out, HasSubstr("data 1 x pipe 2 x tensor 2"));
  const JobRun& alone = RunOnce(Job("gpt_tiny", ""));
  ExpectSameLosses(events, alone.events, 2e-4, "profile");
}

// Every rank has the values that one device would begin with.
TEST(AxesTest, WhatIsMissingOfInitialWeightsKeepsItsValues) {
  const std::string saved = NewFolder("axes_one_layer");
  RunJobForEvents(Joined(Job("gpt_tiny", "--layers=1"),
                         {"--save_dir=" + saved, "--max_steps=1"}));
  const std::string begun =
      "--layers=2 --allow_missing=transformer.h.1.* "
      "--eval_only --init_from=" +
      saved;
  const std::string expected =
      Fingerprint(RunJobForEvents(Job("gpt_tiny", begun)));
  for (const std::string mesh :
       {"--tensor=2", "--shard=parameters", "--pipe=2"}) {
    EXPECT_EQ(Fingerprint(RunJobForEvents(
                  Job("gpt_tiny", begun + " --nproc_per_node=2 " + mesh))),
              expected)
        << mesh;
  }
}

std::vector<RefusalRow> Refusals() {
  return {
      {"Heads", "--heads=3 --width=96 --nproc_per_node=2 --tensor=2",
       "has 3 heads, which 2 ranks along tensor cannot share evenly",
       kAnyFailure},
      {"KeyValueHeads",
       "--model=llama_tiny --heads=6 --width=96 --nproc_per_node=3 --tensor=3",
       "has 2 key-value heads, which 3 ranks along tensor cannot share evenly",
       kAnyFailure},
      {"InnerWidth",
       "--model=llama_tiny --heads=6 --width=96 --kv_heads=3 "
       "--nproc_per_node=3 --tensor=3",
       "has 176 outputs, which 3 ranks along tensor cannot share evenly",
       kAnyFailure},
      {"Tokens", "--context=9 --nproc_per_node=2 --tensor=2",
       "samples of 9 tokens|over 2 ranks", kAnyFailure},
      {"Images",
       "--model=resnet18 --dataset=synthetic --context=0 --tensor=2 "
       "--synthetic_shape=3,32,32 --nproc_per_node=2",
       "--tensor=2 divides GPTs, Llamas and ViTs among ranks, but "
       "--model=resnet18 was given",
       kAnyFailure},
      {"Ranks", "--nproc_per_node=3 --tensor=2",
       "--pipe=1 --tensor=2: the model takes 2 ranks or a multiple, but this "
       "job "
       "has 3: give --nproc_per_node=4"},
      {"Alone", "--sequence_parallel=false", "give --tensor=RANKS as well"},
      {"Replaced", "--nproc_per_node=2 --tensor=2 --replace_replicas=1",
       "this job has one alone: give --nproc_per_node=4 or more"},
      {"Muon", "--nproc_per_node=2 --tensor=2 --optimizer=muon --adam_eps=1e-8",
       "divides the matrices that --optimizer=muon steps whole"},
      {"Reproducible",
       "--nproc_per_node=2 --tensor=2 --reproducible --microbatch_size=2",
       "sums depend on how many ranks share a layer"},
      {"Lora", "--nproc_per_node=2 --tensor=2 --lora_rank=2",
       "divides layers without their adapters (--lora_rank=2)"},
  };
}

class AxesRefusalTest : public testing::TestWithParam<RefusalRow> {};

TEST_P(AxesRefusalTest, SaysWhatIsWrong) {
  ExpectRefused(Job("gpt_tiny", ""), GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, AxesRefusalTest, testing::ValuesIn(Refusals()),
                         RowName<RefusalRow>);

}  // namespace
}  // namespace tandem::axes_test
