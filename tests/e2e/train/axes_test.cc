// Jobs whose ranks share layers (--tensor) or parameters (--shard), beside
// replicas and pipelines: they train what one device trains, and go on in any
// other mesh.

#include <algorithm>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::axes_test {
namespace {

using ::testing::HasSubstr;

// Adam's eps is large, so that a gradient of nearly 0 decides nothing.
Flags Job(const std::string& model, const std::string& more = "") {
  return Joined(
      Words("--dataset=synthetic_tokens --save_dir= --log_every=1 --context=12 "
            "--synthetic_samples=48 --batch_size=12 --optimizer=adamw "
            "--adam_eps=0.01 --max_steps=3 --model=" +
            model),
      TestBackendFlags(), Words(more));
}

struct Mesh {
  std::string name;
  int ranks;
  std::string flags;
  bool has_replicas = false;
};

// Meshes of 2, 4, 6 and 8 ranks.
const std::vector<Mesh>& Meshes() {
  static const auto* const meshes = new std::vector<Mesh>{
      {"Tensor2", 2, "--tensor=2"},
      {"Shard2", 2, "--shard=parameters", true},
      {"Tensor4", 4, "--tensor=4"},
      {"Data2Tensor2", 4, "--tensor=2 --shard=optimizer", true},
      {"Pipe2Tensor2", 4, "--tensor=2 --pipe=2 --schedule=zb_h1"},
      {"Shard2Tensor2", 4, "--tensor=2 --shard=parameters", true},
      {"Pipe2Shard2", 4, "--pipe=2 --shard=parameters", true},
      {"Pipe2Shard2OfWholeStages", 4,
       "--pipe=2 --schedule=looped_bfs --chunks=2 --shard=parameters "
       "--noreshard_after_forward --max_unsharded_stages=1",
       true},
      {"Tensor2OfTwoDevices", 2,
       "--tensor=2 --devices_per_rank=2 --strategy=pipeline"},
      {"Data3Tensor2", 6, "--tensor=2", true},
      {"Pipe3Tensor2", 6, "--tensor=2 --pipe=3"},
      {"Shard3Tensor2", 6, "--tensor=2 --shard=gradients", true},
      {"Data2Pipe2Tensor2", 8, "--tensor=2 --pipe=2", true},
      {"Shard2Pipe2Tensor2", 8, "--tensor=2 --pipe=2 --shard=parameters", true},
      {"Data2Shard2Tensor2", 8, "--tensor=2 --shard=parameters --data_shard=2",
       true},
      {"Pipe2Tensor4", 8, "--tensor=4 --pipe=2"},
  };
  return *meshes;
}

std::string FlagsOf(const Mesh& mesh) {
  return absl::StrCat("--nproc_per_node=", mesh.ranks, " ", mesh.flags);
}

// What a mesh is tried with.
struct Variant {
  std::string name;
  std::string model;
  std::string flags;
};

const std::vector<Variant>& Variants() {
  static const auto* const variants = new std::vector<Variant>{
      {"Gpt", "gpt_tiny", "--clip_grad_norm=0.5"},
      {"TiedGptOfWholeTokens", "gpt_tiny_tied",
       "--sequence_parallel=false --loss_chunk=24"},
      {"LlamaOfUnevenBatches", "llama_tiny",
       "--nodrop_last --synthetic_samples=31 --ema_decay=0.9"},
      {"GptThatDrops", "gpt_tiny", "--dropout=0.1 --label_smoothing=0.1"},
      {"TiedLlamaComputedAgain", "llama_tiny_tied",
       "--checkpoint_every=1 --z_loss=0.001"},
  };
  return *variants;
}

// Flags of a variant that a mesh takes, where it has no ranks that share
// layers.
std::string FlagsIn(const Mesh& mesh, const Variant& variant) {
  const std::string whole = "--sequence_parallel=false ";
  const bool divides = mesh.flags.find("--tensor") != std::string::npos;
  return !divides && variant.flags.find(whole) == 0
             ? variant.flags.substr(whole.size())
             : variant.flags;
}

std::string FlagsAlone(const Variant& variant) {
  return FlagsIn({"One", 1, ""}, variant);
}

struct Cell {
  Mesh mesh;
  Variant variant;
  std::string backend;  // its flag, or empty
};

std::vector<Cell> Cells() {
  std::vector<Cell> cells;
  for (const Mesh& mesh : Meshes()) {
    for (const Variant& variant : Variants()) {
      // Replicas have the samples in another order, and so draw otherwise.
      if (variant.name == "GptThatDrops" && mesh.has_replicas) continue;
      cells.push_back({mesh, variant, ""});
      if (mesh.ranks <= 4) cells.push_back({mesh, variant, "--backend=gloo"});
    }
  }
  return cells;
}

constexpr int kCells = 110;

std::string NameOf(const Cell& cell) {
  return cell.mesh.name + cell.variant.name +
         (cell.backend.empty() ? "" : "OverGloo");
}

class AxesTest : public testing::TestWithParam<Cell> {};

TEST_P(AxesTest, TrainWhatOneDeviceTrains) {
  const auto& [mesh, variant, backend] = GetParam();
  if (!backend.empty() && !TestBackendFlags().empty()) {
    GTEST_SKIP() << "the test's backend is another";
  }
  const JobRun& alone = RunOnce(Job(variant.model, FlagsAlone(variant)));
  const JobRun& run = RunOnce(Job(
      variant.model,
      absl::StrCat(FlagsOf(mesh), " ", FlagsIn(mesh, variant), " ", backend)));
  EXPECT_EQ(StepLosses(run.events).size(), 3u);
  SameLosses(2e-4)(run, alone);
}

INSTANTIATE_TEST_SUITE_P(All, AxesTest, testing::ValuesIn(Cells()),
                         [](const auto& info) { return NameOf(info.param); });

TEST(AxesTestCells, NoneIsMissing) {
  std::cout << Cells().size() << " cells\n";
  EXPECT_EQ(Cells().size(), static_cast<size_t>(kCells));
}

// Meshes from which jobs go on, and in which.
std::vector<Mesh> ResumedMeshes() {
  std::vector<Mesh> meshes = {{"One", 1, ""}};
  for (const Mesh& each : Meshes()) {
    for (const char* name :
         {"Tensor2", "Shard2", "Pipe2Tensor2", "Shard2Tensor2"}) {
      if (each.name == name) meshes.push_back(each);
    }
  }
  return meshes;
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
      "--layers=1 --width=32 --heads=2 --max_steps=2 --eval_batches=1 ";
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
  const JobRun& alone = RunOnce(Job("gpt_tiny"));
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
  ExpectRefused(Job("gpt_tiny"), GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, AxesRefusalTest, testing::ValuesIn(Refusals()),
                         RowName<RefusalRow>);

}  // namespace
}  // namespace tandem::axes_test
