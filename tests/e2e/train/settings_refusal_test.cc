// Settings that do not fit are refused by name: techniques that do not go
// together, or not with a layout; and ranks that were started with different
// ones, whoever started them.

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::settings_refusal_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Rows = std::vector<RefusalRow>;

class TechniqueRefusalTest : public testing::TestWithParam<RefusalRow> {};

TEST_P(TechniqueRefusalTest, NamesWhatDoesNotFit) {
  ExpectRefused(SmallJob(), GetParam());
}

Rows DataParallelRows() {
  const std::string job = "--strategy=data_parallel ";
  const std::string two = job + "--devices_per_rank=2 ";
  return {
      {"OneDevice", job, "replicas on the several devices of each rank"},
      {"Pipe", two + "--pipe=2",
       "--pipe=2 needs --strategy=pipeline or hybrid"},
      {"Microbatches", two + "--microbatches=4",
       "--microbatches=4 is for pipelines"},
      {"Reproducible", two + "--reproducible --microbatch_size=4",
       "--reproducible excludes --strategy=data_parallel"},
      {"Balance", two + "--balance=uniform", "each device has all of it"},
      {"Cut", two + "--balance=fc2", "each device has all of it"},
  };
}

INSTANTIATE_TEST_SUITE_P(DataParallel, TechniqueRefusalTest,
                         testing::ValuesIn(DataParallelRows()),
                         RowName<RefusalRow>);

Rows ValuesRows() {
  const std::string checked = "--check_replicas_every=2 ";
  const std::string two = checked + "--nproc_per_node=2 ";
  const std::string servers =
      "--nproc_per_node=3 --strategy=parameter_server --servers=1 ";
  return {
      {"ReplicasThatTrainApart", two + "--average_parameters_every=4",
       "has train apart for a while"},
      {"ReplicasMadeAlike", two + "--average_parameters_every=1",
       "makes alike in each step"},
      {"ReplicasThatShareTheOptimizer", two + "--shard=optimizer",
       "--shard=optimizer makes alike in each step"},
      {"ReplicasOfDifferentAges", servers + checked,
       "parameters of different ages"},
      {"OneReplica", checked,
       "--check_replicas_every=2 is about several replicas, but this job has "
       "one"},
      {"ReplicasOfOneProcess",
       checked + "--strategy=data_parallel --devices_per_rank=2",
       "--check_replicas_every=2 is about several replicas"},
      {"AveragesOfServers", servers + "--ema_decay=0.9",
       "--ema_decay=0.9 averages weights where they are updated"},
      {"AveragesOfReplicasThatTrainApart",
       "--nproc_per_node=2 --average_parameters_every=4 --ema_decay=0.9",
       "--ema_decay=0.9 averages weights that all replicas have alike"},
      {"AveragesThatNeverMove", "--ema_decay=1", "--ema_decay=1: must be from"},
      {"SkippedStepsOfServers", servers + "--skip_nonfinite",
       "--skip_nonfinite skips a step"},
      {"ScaleWithoutFp16", "--skip_nonfinite --init_scale=4",
       "about the scale of the loss"},
      {"NormThatIsNotFinite",
       "--nproc_per_node=2 --learning_rate=1e30 --clip_grad_norm=1 "
       "--error_if_nonfinite",
       "cannot be clipped", 1},
  };
}

INSTANTIATE_TEST_SUITE_P(Values, TechniqueRefusalTest,
                         testing::ValuesIn(ValuesRows()), RowName<RefusalRow>);

TEST(SkippedStepsTest, AJobThatHasSkippedAllHasFailed) {
  const ProgramResult result =
      ExpectRefused(SmallJob(), {"AllSkipped", "--z_loss=1e60 --skip_nonfinite",
                                 "all 6 steps were skipped", 1});
  EXPECT_THAT(result.out, HasSubstr("skipped            6 steps"));
}

Rows ReproducibleRows() {
  const std::string job =
      Typed(Tiny("mlp_small",
                 "--reproducible --batch_size=16 --microbatch_size=2 "
                 "--synthetic_samples=64 "));
  return {
      {"NoMicrobatches", job + " --microbatch_size=0",
       "--reproducible needs --microbatch_size", kAnyFailure},
      {"MicrobatchesThatDoNotDivide", job + " --microbatch_size=3",
       "--microbatch_size=3 does not divide", kAnyFailure},
      {"Groups", job + " --gradient_groups=3", "--gradient_groups=3",
       kAnyFailure},
      {"Hook", job + " --comm_hook=fp16", "--comm_hook=fp16 rounds",
       kAnyFailure},
      {"WeightGradients", job + " --weight_gradient_batch=2",
       "--weight_gradient_batch=2", kAnyFailure},
      {"DeferredBatchNorm", job + " --deferred_batch_norm",
       "--deferred_batch_norm takes", kAnyFailure},
      {"Pipe", job + " --pipe=2", "--pipe=2", kAnyFailure},
  };
}

INSTANTIATE_TEST_SUITE_P(Reproducible, TechniqueRefusalTest,
                         testing::ValuesIn(ReproducibleRows()),
                         RowName<RefusalRow>);

Rows ServerRows() {
  const std::string job = "--batch_size=12 --epochs=2 ";
  const std::string served =
      job + "--strategy=parameter_server --servers=1 --nproc_per_node=3 ";
  const std::string replicated = job + "--nproc_per_node=2 ";
  return {
      {"NoWorker", served + "--servers=2 --nproc_per_node=2",
       "--servers=2 of 2 rank(s) leave no worker"},
      {"Staleness", served + "--max_staleness=-2", "--max_staleness=-2"},
      {"Hook", served + "--comm_hook=fp16",
       "--comm_hook=fp16 is about replicas"},
      {"Averaging", served + "--average_parameters_every=4",
       "--average_parameters_every=4 is about replicas"},
      {"NormOfStaleGradients", served + "--clip_grad_norm=1 --max_staleness=2",
       "--clip_grad_norm=1 needs all gradients"},
      {"Trace", served + "--trace_file=trace.json", "--trace_file="},
      {"StalenessOfReplicas", replicated + "--max_staleness=3",
       "--max_staleness=3 is for parameter servers"},
      {"OuterMomentumAlone", replicated + "--outer_momentum=0.9",
       "give --average_parameters_every=STEPS as well"},
  };
}

INSTANTIATE_TEST_SUITE_P(Server, TechniqueRefusalTest,
                         testing::ValuesIn(ServerRows()), RowName<RefusalRow>);

class TransformerRefusalTest : public testing::TestWithParam<RefusalRow> {};

// These say all of their flags.
TEST_P(TransformerRefusalTest, NamesWhatDoesNotFit) {
  ExpectRefused({}, GetParam());
}

Rows TransformerRows() {
  const std::string job =
      "--dataset=synthetic_tokens --context=16 --synthetic_samples=48 "
      "--batch_size=16 --optimizer=adam --max_steps=3 --save_dir= "
      "--log_every=1 ";
  const std::string llama = job + "--model=llama_tiny ";
  const std::string parts =
      "--model=gpt_tiny_tied --dataset=synthetic_tokens --context=8 "
      "--synthetic_samples=32 --batch_size=8 --optimizer=adamw --reproducible "
      "--microbatch_size=4 --epochs=1 --save_dir= --log_every=1 ";
  const std::string cnn = "--model=cnn --save_dir= ";
  return {
      {"KeysOfAGpt", job + "--model=gpt_tiny --kv_heads=2",
       "gpt_tiny has no kv_heads", kAnyFailure},
      {"KeysThatDoNotDivide", llama + "--kv_heads=3", "4 heads and 3 kv_heads",
       kAnyFailure},
      {"ChunksWithAFurtherLoss", llama + "--loss_chunk=8 --z_loss=1e-4",
       "leave one out", kAnyFailure},
      {"ChunksOnReplicasOfAProcess",
       llama + "--loss_chunk=8 --devices_per_rank=2 "
               "--strategy=data_parallel",
       "use --strategy=ddp", kAnyFailure},
      {"ChunksOfACnn", cnn + "--loss_chunk=8", "is for GPTs and Llamas",
       kAnyFailure},
      {"DropoutOfALlama", llama + "--dropout=0.1", "takes no dropout",
       kAnyFailure},
      {"LayersOfACnn", cnn + "--layers=8", "model cnn is of one size",
       kAnyFailure},
      {"PartsWithAFurtherLoss", parts + "--vocab_parallel=2 --z_loss=1e-4",
       "leave one out", kAnyFailure},
      {"PartsOnReplicasOfAProcess",
       parts + "--vocab_parallel=2 --devices_per_rank=2 "
               "--strategy=data_parallel --reproducible=false "
               "--microbatch_size=0",
       "not --strategy=data_parallel", kAnyFailure},
      {"MorePartsThanRows", parts + "--vocab_parallel=300",
       "has 256 rows to divide into 300", kAnyFailure},
      {"PartsOfACnn", cnn + "--vocab_parallel=2", "is for GPTs and Llamas",
       kAnyFailure},
  };
}

INSTANTIATE_TEST_SUITE_P(All, TransformerRefusalTest,
                         testing::ValuesIn(TransformerRows()),
                         RowName<RefusalRow>);

TEST(TechniqueRefusalTableTest, NoRowIsMissing) {
  EXPECT_EQ(DataParallelRows().size(), 6u);
  EXPECT_EQ(ValuesRows().size(), 8u + 4);
  EXPECT_EQ(ReproducibleRows().size(), 7u);
  EXPECT_EQ(ServerRows().size(), 8u);
  EXPECT_EQ(TransformerRows().size(), 7u + 4);
}

// Starts two ranks that differ in the flags of their own and in how they say
// who they are, and waits.
std::vector<ProgramResult> RunTwo(const Flags& both,
                                  const std::vector<Flags>& own) {
  std::vector<std::unique_ptr<Program>> ranks;
  for (const Flags& mine : own) {
    ranks.push_back(std::make_unique<Program>(kTrain, Joined(both, mine)));
  }
  std::vector<ProgramResult> results;
  for (const auto& rank : ranks) results.push_back(rank->Wait());
  return results;
}

// By hand: with --rank and --dist_url.
std::vector<ProgramResult> RunByHand(const Flags& both, const Flags& first,
                                     const Flags& second) {
  const std::string url =
      "--dist_url=tcp://127.0.0.1:" + std::to_string(FreePort());
  return RunTwo(Joined(both, {"--world_size=2", "--timeout=60", url}),
                {Joined(first, {"--rank=0"}), Joined(second, {"--rank=1"})});
}

void ExpectRanksRefused(const std::vector<ProgramResult>& ranks,
                        const std::string& says) {
  for (const ProgramResult& rank : ranks) {
    EXPECT_EQ(rank.exit_code, 2) << rank.err;
    EXPECT_THAT(rank.err, AllOf(HasSubstr("the ranks' settings differ: "),
                                HasSubstr(says)));
    EXPECT_THAT(rank.out, Not(HasSubstr("epoch 1  step")));
  }
}

struct OtherFlag {
  const char* name;
  std::string second;  // on rank 1 alone
  std::string says;
};

class OtherFlagTest : public testing::TestWithParam<OtherFlag> {};

TEST_P(OtherFlagTest, IsRefusedOnBothRanks) {
  ExpectRanksRefused(RunByHand(SmallJob(), {}, {GetParam().second}),
                     GetParam().says);
}

INSTANTIATE_TEST_SUITE_P(
    All, OtherFlagTest,
    testing::Values(
        OtherFlag{"LearningRate", "--learning_rate=0.001",
                  "--learning_rate is not given on rank 0, 0.001 on rank 1"},
        OtherFlag{"Seed", "--seed=5", "--seed is 0 on rank 0, 5 on rank 1"},
        OtherFlag{"Backend", "--backend=gloo",
                  "--backend is shm on rank 0, gloo on rank 1"},
        OtherFlag{"BatchSize", "--batch_size=32",
                  "--batch_size is 16 on rank 0, 32 on rank 1"},
        OtherFlag{"MaxSteps", "--max_steps=2",
                  "--max_steps is 0 on rank 0, 2 on rank 1"},
        OtherFlag{"Network", "--model=mlp_deep",
                  "--model is mlp_small on rank 0, mlp_deep on rank 1"},
        OtherFlag{"Strategy", "--strategy=hybrid",
                  "--strategy is auto on rank 0, hybrid on rank 1"},
        OtherFlag{"Samples", "--synthetic_samples=64",
                  "--synthetic_samples is 96 on rank 0, 64 on rank 1"}),
    [](const auto& info) { return info.param.name; });

TEST(OtherSettingsTest, AScheduleFilesContentsAreCompared) {
  const std::string folder = NewFolder("schedules");
  std::ofstream(folder + "/a.txt") << "F0 F1 B0 B1\nF0 B0 F1 B1\n";
  std::ofstream(folder + "/b.txt") << "F0 F1 B0 B1\nF0 F1 B0 B1\n";
  ExpectRanksRefused(
      RunByHand(SmallJob({"--pipe=2"}), {"--schedule=" + folder + "/a.txt"},
                {"--schedule=" + folder + "/b.txt"}),
      "--schedule's device 1 is stages 1; 1F0 1B0 1F1 1B1 on rank 0, "
      "stages 1; 1F0 1F1 1B0 1B1 on rank 1");
}

TEST(OtherSettingsTest, TwoLaunchersAreComparedToo) {
  const int port = FreePort();
  const std::vector<ProgramResult> nodes = RunTwo(
      SmallJob({"--timeout=60"}),
      {NodeFlags(2, 0, port), Joined(NodeFlags(2, 1, port), {"--momentum=0"})});
  ExpectRanksRefused(nodes, "--momentum is 0.9 on rank 0, 0 on rank 1");
}

// Collectives are checked on one rank alone, which would wait for ever.
TEST(OtherSettingsTest, WhatTheEnvironmentSaysIsComparedWhereItMatters) {
  const std::string url =
      "--dist_url=tcp://127.0.0.1:" + std::to_string(FreePort());
  ProgramOptions checked;
  checked.environment["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL";
  const Flags flags = SmallJob({"--world_size=2", "--timeout=60", url});
  Program one(kTrain, Joined(flags, {"--rank=0"}));
  Program other(kTrain, Joined(flags, {"--rank=1"}), checked);
  ExpectRanksRefused(
      {one.Wait(), other.Wait()},
      "TORCH_DISTRIBUTED_DEBUG=DETAIL is not set on rank 0, set on "
      "rank 1");
}

TEST(OtherSettingsTest, WhatBelongsToARankMayDiffer) {
  const std::string logs = NewFolder("logs");
  const std::vector<ProgramResult> ranks = RunByHand(
      SmallJob({"--max_steps=1"}),
      {"--log_dir=" + logs + "/a", "--workers=0",
       "--metrics_file=" + logs + "/metrics"},
      {"--log_dir=" + logs + "/b", "--workers=2", "--intra_op_threads=2"});
  for (const ProgramResult& rank : ranks) {
    EXPECT_EQ(rank.exit_code, 0) << rank.err;
  }
}

TEST(OtherSettingsTest, AnotherCheckpointIsRefused) {
  const std::string folder = NewFolder("checkpoints");
  for (const std::string rank : {"0", "1"}) {
    const ProgramResult saved = RunProgram(
        kTrain, SmallJob({"--save_dir=" + folder + "/" + rank,
                          rank == "0" ? "--max_steps=1" : "--max_steps=2"}));
    ASSERT_EQ(saved.exit_code, 0) << saved.err;
  }
  // A path that leads each rank to another checkpoint, as on hosts that have
  // folders of their own.
  std::filesystem::rename(folder + "/1/step-000000002",
                          folder + "/1/step-000000001");
  const std::string url =
      "--dist_url=tcp://127.0.0.1:" + std::to_string(FreePort());
  std::vector<std::unique_ptr<Program>> ranks;
  for (const std::string rank : {"0", "1"}) {
    ProgramOptions options;
    options.working_folder = folder + "/" + rank;
    ranks.push_back(std::make_unique<Program>(
        kTrain,
        SmallJob({"--world_size=2", "--timeout=60", url, "--rank=" + rank,
                  "--resume=/proc/self/cwd"}),
        options));
  }
  for (const auto& rank : ranks) {
    const ProgramResult result = rank->Wait();
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("the step is 1 on rank 0, 2 on rank 1"));
  }
}

}  // namespace
}  // namespace tandem::settings_refusal_test
