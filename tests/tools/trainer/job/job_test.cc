// A job's strategy, its batches in evaluations, its FLOPs, and its folder.

#include "tools/trainer/job/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/owned_fd.h"
#include "core/base/status_macros.h"
#include "core/files/atomic_folder.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "datasets/synthetic.h"
#include "models/mlp.h"
#include "models/registry.h"
#include "tools/trainer/job/data.h"
#include "tools/trainer/job/model.h"
#include "tools/trainer/job/save_folder.h"

namespace tandem::job_test {
namespace {

using testing::HasSubstr;

Mesh MakeMesh(int world_size, int pipe) {
  return Mesh::Create(world_size, {.pipe = pipe}).value();
}

std::string Strategy(int world_size, int pipe, int devices,
                     const std::string& requested = "") {
  return StrategyFor(MakeMesh(world_size, pipe), devices, requested).value();
}

absl::Status Refusal(int world_size, int pipe, int devices,
                     const std::string& requested) {
  return StrategyFor(MakeMesh(world_size, pipe), devices, requested).status();
}

TEST(StrategyForTest, FollowsFromTheMesh) {
  EXPECT_EQ(Strategy(1, 1, 1), "single");
  EXPECT_EQ(Strategy(2, 1, 1), "ddp");
  EXPECT_EQ(Strategy(7, 1, 1), "ddp");
  EXPECT_EQ(Strategy(2, 1, 2), "ddp");
  EXPECT_EQ(Strategy(1, 1, 2), "model_parallel");
  EXPECT_EQ(Strategy(2, 2, 1), "pipeline");
  EXPECT_EQ(Strategy(2, 2, 2), "pipeline");
  EXPECT_EQ(Strategy(4, 2, 1), "hybrid");
  EXPECT_EQ(Strategy(4, 2, 2), "hybrid");
  EXPECT_EQ(Strategy(2, 1, 1, "auto"), "ddp");
}

// Which of the six take each mesh: ranks, pipe degree, devices per rank.
TEST(StrategyForTest, ARequestThatFitsIsTakenAndNoOther) {
  const std::map<std::vector<int>, std::set<std::string>> fitting = {
      {{1, 1, 1}, {"single", "ddp", "hybrid", "parameter_server"}},
      {{3, 1, 1}, {"ddp", "hybrid", "parameter_server"}},
      {{1, 1, 2},
       {"ddp", "data_parallel", "model_parallel", "pipeline", "hybrid",
        "parameter_server"}},
      {{2, 1, 2}, {"ddp", "data_parallel", "hybrid", "parameter_server"}},
      {{2, 2, 1}, {"pipeline", "hybrid"}},
      {{2, 2, 2}, {"pipeline", "hybrid"}},
      {{4, 2, 1}, {"hybrid"}},
      {{4, 2, 2}, {"hybrid"}},
  };
  for (const auto& [mesh, names] : fitting) {
    const std::string usual = Strategy(mesh[0], mesh[1], mesh[2]);
    EXPECT_EQ(names.count(usual), 1u) << usual;
    for (const std::string name :
         {"single", "ddp", "data_parallel", "model_parallel", "pipeline",
          "hybrid", "parameter_server"}) {
      if (names.count(name) > 0) {
        EXPECT_EQ(Strategy(mesh[0], mesh[1], mesh[2], name), name);
      } else {
        EXPECT_THAT(Refusal(mesh[0], mesh[1], mesh[2], name),
                    InvalidArgument("strategy " + name, "use " + usual + ","));
      }
    }
  }
}

// Ranks that share layers are as one.
TEST(StrategyForTest, LayersAreDividedInEachButTwo) {
  const Mesh one = Mesh::Create(4, {.pipe = 1, .tensor = 4}).value();
  const Mesh replicas = Mesh::Create(4, {.pipe = 1, .tensor = 2}).value();
  const Mesh pipeline = Mesh::Create(4, {.pipe = 2, .tensor = 2}).value();
  EXPECT_EQ(*StrategyFor(one, 1, ""), "single");
  EXPECT_EQ(*StrategyFor(one, 2, ""), "model_parallel");
  EXPECT_EQ(*StrategyFor(replicas, 1, ""), "ddp");
  EXPECT_EQ(*StrategyFor(pipeline, 1, ""), "pipeline");
  EXPECT_EQ(*StrategyFor(one, 1, "hybrid"), "hybrid");
  EXPECT_THAT(StrategyFor(one, 2, "data_parallel").status(),
              InvalidArgument("strategy data_parallel", "tensor 4"));
  EXPECT_THAT(StrategyFor(replicas, 1, "parameter_server").status(),
              InvalidArgument("strategy parameter_server", "tensor 2"));
}

TEST(StrategyForTest, AContradictionNamesBothSides) {
  EXPECT_THAT(Refusal(2, 1, 1, "single"),
              InvalidArgument("the strategy single runs one replica",
                              "data 2 x pipe 1, devices per rank 1"));
}

TEST(StrategyForTest, AnUnknownNameListsTheKnown) {
  EXPECT_THAT(
      Refusal(1, 1, 1, "zero"),
      InvalidArgument("choose one of auto, single, ddp, data_parallel, "
                      "model_parallel, pipeline, hybrid, parameter_server"));
  EXPECT_FALSE(StrategyFor(Mesh(), 0, "").ok());
}

std::unique_ptr<Dataset> Images(const std::vector<int64_t>& shape) {
  SyntheticImagesOptions options;
  options.shape = shape;
  options.length = 1;
  return MakeSyntheticImages(options).value();
}

std::unique_ptr<Dataset> Tokens(int64_t vocabulary, int64_t context) {
  SyntheticTokensOptions options;
  options.vocabulary = vocabulary;
  options.context = context;
  options.length = 1;
  return MakeSyntheticTokens(options).value();
}

int64_t DefaultBatchSize(const std::vector<int64_t>& shape, int64_t training) {
  return EvaluationBatchSize(TrainOptions(), training, *Images(shape));
}

TEST(EvaluationBatchTest, SmallSamplesComeByAMebibyteOr256) {
  EXPECT_EQ(DefaultBatchSize({1, 28, 28}, 64), 256);
  EXPECT_EQ(DefaultBatchSize({10}, 1), 256);
  EXPECT_EQ(DefaultBatchSize({}, 1), 256);
  // Samples have 12 KiB each, and 588.
  EXPECT_EQ(DefaultBatchSize({3, 32, 32}, 8), 85);
  EXPECT_EQ(DefaultBatchSize({3, 224, 224}, 1), 1);
}

TEST(EvaluationBatchTest, IsTheTrainingsWhereThatIsMore) {
  EXPECT_EQ(DefaultBatchSize({1, 28, 28}, 512), 512);
  EXPECT_EQ(DefaultBatchSize({3, 224, 224}, 32), 32);
  EXPECT_EQ(DefaultBatchSize({3, 1024, 1024}, 2), 2);
}

TEST(EvaluationBatchTest, IsTheTrainingsOfTokens) {
  EXPECT_EQ(EvaluationBatchSize(TrainOptions(), 4, *Tokens(256, 8)), 4);
  EXPECT_EQ(EvaluationBatchSize(TrainOptions(), 64, *Tokens(50257, 1024)), 64);
}

TEST(EvaluationBatchTest, LogitsOfAnEvaluationAloneTake256MebibytesAtMost) {
  TrainOptions options;
  options.eval_only = true;
  const auto size_of = [&](int64_t vocabulary, int64_t context) {
    return EvaluationBatchSize(options, 64, *Tokens(vocabulary, context));
  };
  EXPECT_EQ(size_of(50257, 1024), 1);   // 196 MiB each
  EXPECT_EQ(size_of(50257, 128), 10);   // 24.5 MiB each
  EXPECT_EQ(size_of(1024, 1024), 64);   // 4 MiB each
  EXPECT_EQ(size_of(128256, 1024), 1);  // 501 MiB each
  EXPECT_EQ(size_of(256, 8), 64);
  options.eval_batch_size = 7;
  EXPECT_EQ(size_of(50257, 1024), 7);
}

TEST(EvaluationBatchTest, IsWhatWasAskedFor) {
  TrainOptions options;
  options.eval_batch_size = 7;
  EXPECT_EQ(EvaluationBatchSize(options, 64, *Images({1, 28, 28})), 7);
}

std::unique_ptr<Dataset> Images() {
  return *MakeSyntheticImages({{1, 16, 16}, 10, 8});
}

std::unique_ptr<Dataset> Tokens() {
  return *MakeSyntheticTokens({/*vocabulary=*/256, /*context=*/16});
}

JobFlops CountedFlops(const TrainOptions& options, const Dataset& data) {
  return ModelFlops(options, std::nullopt, data, /*devices=*/2);
}

TEST(JobFlopsTest, EveryModelOfTheTrainersCanBeCounted) {
  const auto images = Images();
  const auto tokens = Tokens();
  for (const std::string& name : KnownModels()) {
    if (name == "toy" || name == "toy_mp") continue;  // take no images
    TrainOptions options;
    options.model = name;
    const JobFlops flops =
        CountedFlops(options, TakesTokens(name) ? *tokens : *images);
    EXPECT_GT(flops.forward, 0) << name << ": " << flops.unknown;
  }
}

TEST(JobFlopsTest, AStepHasThreePassesAndAPeakIsOfAllDevices) {
  TrainOptions options;
  options.model = "mlp_small";
  options.peak_tflops = 0.5;
  const JobFlops flops = CountedFlops(options, *Images());
  const double forward = 2.0 * (256 * 64 + 6 * 64 * 64 + 64 * 10);
  EXPECT_EQ(flops.forward, forward);
  EXPECT_EQ(flops.per_sample(), 3 * forward);
  EXPECT_EQ(flops.per_s(100), 300 * forward);
  EXPECT_DOUBLE_EQ(flops.utilization(100), 300 * forward / 1e12);
  options.peak_tflops = 0;
  EXPECT_EQ(CountedFlops(options, *Images()).utilization(100), 0);
}

// No gradient is computed of a frozen weight.
TEST(JobFlopsTest, AFrozenModelHasTwoPassesAndItsAdaptersThree) {
  TrainOptions options;
  options.model = "mlp_small";
  options.lora_rank = 4;
  options.lora_on = "fc1\\.";
  const JobFlops flops = CountedFlops(options, *Images());
  const double frozen = 2.0 * (256 * 64 + 6 * 64 * 64 + 64 * 10);
  const double adapter = 2.0 * 4 * (256 + 64);
  EXPECT_EQ(flops.forward, frozen + adapter);
  EXPECT_EQ(flops.per_sample(), 2 * frozen + 3 * adapter);
}

// Chunks leave the last product to the loss: it is the model's all the same.
TEST(JobFlopsTest, HowItIsComputedDoesNotMatter) {
  TrainOptions options;
  options.model = "gpt_tiny";
  const auto tokens = Tokens();
  const double whole = CountedFlops(options, *tokens).forward;
  options.loss_chunk = 8;
  EXPECT_EQ(CountedFlops(options, *tokens).forward, whole);
  options.vocab_parallel = 3;
  EXPECT_EQ(CountedFlops(options, *tokens).forward, whole);
  options.checkpoint_every = 2;
  EXPECT_EQ(CountedFlops(options, *tokens).forward, whole);
}

TEST(JobFlopsTest, ARegisteredModelIsCountedWhereItIsAskedFor) {
  const auto make = [](const ModelOptions&) -> absl::StatusOr<LayerSpecs> {
    return Mlp({256, 1, 0, 10});
  };
  ASSERT_EQ(RegisterModel("own", make), absl::OkStatus());
  TrainOptions options;
  options.model = "own";
  const JobFlops none = CountedFlops(options, *Images());
  EXPECT_EQ(none.per_s(100), 0);
  EXPECT_THAT(none.unknown, HasSubstr("give --peak_tflops"));
  options.peak_tflops = 1;
  EXPECT_EQ(CountedFlops(options, *Images()).forward, 2 * 256 * 10);
}

TEST(JobFlopsTest, WhyItIsNotKnownIsSaid) {
  TrainOptions options;
  options.model = "gpt_tiny";
  options.peak_tflops = 1;
  const JobFlops flops = CountedFlops(options, *Images());
  EXPECT_EQ(flops.utilization(100), 0);
  EXPECT_THAT(flops.unknown, HasSubstr("takes token numbers"));
}

std::string NewFolder(const std::string& name) {
  const std::string folder = testing::TempDir() + "/" + name;
  std::filesystem::remove_all(folder);
  return folder;
}

// What three ranks are told.
absl::Status Prepare(const std::string& folder) {
  SaveFolder own[3];
  return RunThreadRanks(3, [&](Communicator& world) {
    return PrepareSaveFolder(folder, world, &own[world.rank()]);
  });
}

TEST(PrepareSaveFolderTest, MakesTheFolderAndLeavesNothingInIt) {
  const std::string folder = NewFolder("prepared") + "/a/b";
  EXPECT_TRUE(Prepare(folder).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_TRUE(Prepare(folder).ok());
  EXPECT_TRUE(Prepare("").ok());
}

TEST(PrepareSaveFolderTest, AFolderThatAnotherJobHasIsRefused) {
  const std::string folder = NewFolder("taken");
  std::filesystem::create_directories(folder);
  absl::StatusOr<OwnedFd> others =
      LockFolder(folder, std::chrono::milliseconds(0));
  ASSERT_TRUE(others.ok() && *others) << others.status();
  const absl::Status status = Prepare(folder);
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "--save_dir=" + folder + ": another job has it"));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

// Ranks are replaced, and another one is then the first.
TEST(PrepareSaveFolderTest, TheLockGoesFromOneRankToAnother) {
  const std::string folder = NewFolder("handed_on");
  ExpectOk(RunThreadRanks(2, [&](Communicator& world) -> absl::Status {
    SaveFolder own;
    TANDEM_RETURN_IF_ERROR(PrepareSaveFolder(folder, world, &own));
    EXPECT_EQ(static_cast<bool>(own.lock), world.rank() == 0);
    EXPECT_EQ(own.made, world.rank() == 0 ? folder : "");
    TANDEM_ASSIGN_OR_RETURN(const auto turned,
                            world.Subgroup({1, 0}, "turned"));
    TANDEM_RETURN_IF_ERROR(PrepareSaveFolder(folder, *turned, &own));
    EXPECT_EQ(static_cast<bool>(own.lock), world.rank() == 1);
    EXPECT_EQ(own.made, "");
    return absl::OkStatus();
  }));
}

TEST(PrepareSaveFolderTest, AFolderThatWasMadeForNothingGoes) {
  const std::string folder = NewFolder("unused");
  const auto prepare = [&](SaveFolder& own) {
    ExpectOk(RunThreadRanks(1, [&](Communicator& world) {
      return PrepareSaveFolder(folder, world, &own);
    }));
  };
  SaveFolder made;
  prepare(made);
  RemoveUnusedFolder(made);
  EXPECT_FALSE(std::filesystem::exists(folder));
  prepare(made);
  std::ofstream(folder + "/checkpoint") << "1";
  RemoveUnusedFolder(made);
  EXPECT_TRUE(std::filesystem::exists(folder + "/checkpoint"));
  std::filesystem::remove(folder + "/checkpoint");
  made = SaveFolder();
  SaveFolder found;
  prepare(found);
  RemoveUnusedFolder(found);  // it was there
  EXPECT_TRUE(std::filesystem::exists(folder));
}

TEST(PrepareSaveFolderTest, NamesTheFolderThatCannotBeUsed) {
  EXPECT_THAT(Prepare("/proc/nowhere"),
              Says("--save_dir=/proc/nowhere: cannot make the folder"));
  EXPECT_THAT(Prepare("/proc"), Says("--save_dir=/proc: cannot write"));
  EXPECT_FALSE(Prepare("/dev/null").ok());
  const std::string link = NewFolder("dangling");
  std::filesystem::create_symlink("/no/such/disk", link);
  EXPECT_THAT(Prepare(link),
              Says("--save_dir=" + link +
                   ": it is a link to /no/such/disk, which is not there"));
}

}  // namespace
}  // namespace tandem::job_test
