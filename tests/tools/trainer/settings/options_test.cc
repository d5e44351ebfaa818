#include "tools/trainer/settings/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <string>

#include "core/testing/statuses.h"
#include "models/decoding/sampling.h"

namespace tandem::options_test {
namespace {

using testing::HasSubstr;

TEST(TrainOptionsTest, DefaultsAreValid) {
  EXPECT_TRUE(Validate(TrainOptions()).ok());
}

// The program generate continues the same prompts in another terminal.
TEST(TrainOptionsTest, TextsAreDrawnAtTheTemperatureOfGenerate) {
  EXPECT_EQ(TrainOptions().temperature, SamplingOptions().temperature);
}

void MakePipeline(TrainOptions& options) {
  options.strategy = "pipeline";
  options.devices.devices_per_rank = 2;
}

TEST(TrainOptionsTest, APipelineNeedsNoSettingOfReplicas) {
  TrainOptions options;
  MakePipeline(options);
  ExpectOk(Validate(options));
  options.strategy = "auto";  // a model in parts, which may have replicas
  options.ddp.comm_hook = "fp16";
  ExpectOk(Validate(options));
}

TEST(BatchSizeTest, IsThatOfTheTokensUnlessGiven) {
  TrainOptions options;
  EXPECT_EQ(ResolvedBatchSize(options), 64);
  EXPECT_EQ(BatchSizeAsGiven(options), "--batch_size=64");
  options.batch_size = 8;
  EXPECT_EQ(ResolvedBatchSize(options), 8);
  ExpectOk(CheckTokensPerStep(options, 3));
  options.batch_size.reset();
  options.dataset = "synthetic_tokens";
  options.tokens_per_step = 8192;
  EXPECT_EQ(ResolvedBatchSize(options), 64);  // of 128 tokens
  options.context = 1024;
  EXPECT_EQ(ResolvedBatchSize(options), 8);
  options.context = 0;
  options.synthetic_shape = {8192};
  EXPECT_EQ(BatchSizeAsGiven(options), "--tokens_per_step=8192 (1 sample)");
  ExpectOk(Validate(options));
  // Which say the same.
  options.batch_size = 1;
  ExpectOk(Validate(options));
}

TEST(BatchSizeTest, ReplicasHaveAsManyWholeSamples) {
  TrainOptions options;
  options.dataset = "tokens";
  options.tokens_per_step = 8320;  // 65 samples
  ExpectOk(Validate(options));
  EXPECT_EQ(CheckTokensPerStep(options, 2).message(),
            "--tokens_per_step=8320 does not divide by the 128 tokens of a "
            "sample on each of 2 replicas: take 8192 or 8448");
  options.tokens_per_step = 128;
  EXPECT_THAT(CheckTokensPerStep(options, 4), Says("4 replicas: take 512"));
  options.tokens_per_step = 8192;
  ExpectOk(CheckTokensPerStep(options, 2));
}

// The same parts on one rank and on several.
TEST(AccumulationTest, IsByNumberOrBySize) {
  TrainOptions options;
  EXPECT_EQ(AccumulationSteps(options, 64), 1);
  options.ddp.gradient_accumulation_steps = 3;
  EXPECT_EQ(AccumulationSteps(options, 64), 3);
  options.ddp.gradient_accumulation_steps = 1;
  options.pipeline.microbatch_size = 16;
  EXPECT_EQ(AccumulationSteps(options, 64), 4);
  EXPECT_EQ(AccumulationSteps(options, 33), 3);
  EXPECT_EQ(AccumulationSteps(options, 8), 1);
  for (const std::string strategy :
       {"auto", "single", "ddp", "model_parallel", "parameter_server"}) {
    options.strategy = strategy;
    ExpectOk(Validate(options));
  }
}

// With "auto" it is the number of ranks that makes a pipeline one of several.
TEST(TrainOptionsTest, SeveralPipelinesAverageWhatOneDoesNot) {
  TrainOptions options;
  options.pipeline.pipe = 2;
  options.ddp.bucket_cap_mb = {5};
  options.ddp.comm_hook = "fp16";
  ExpectOk(Validate(options));
  ExpectOk(CheckReplicas(options, 2));
  EXPECT_THAT(CheckReplicas(options, 1),
              Says("--bucket_cap_mb=5 is for replicas, but a pipeline is "
                   "one replica"));
  options.ddp = DdpSettings();
  options.ddp.average_parameters_every = 4;
  options.ddp.static_graph = true;
  ExpectOk(CheckReplicas(options, 2));
  options.ddp.gradient_accumulation_steps = 2;
  EXPECT_THAT(CheckReplicas(options, 2),
              Says("a pipeline accumulates over its microbatches"));
}

TEST(TrainOptionsTest, Fp16AloneScalesTheLoss) {
  TrainOptions options;
  EXPECT_FALSE(RequestedGradScaler(options).has_value());
  options.dtype = "bf16";
  options.reduce_dtype = "fp16";
  EXPECT_FALSE(RequestedGradScaler(options).has_value());
  ExpectOk(Validate(options));
  options.dtype = "fp16";
  options.init_scale = 1024;
  options.growth_interval = 5;
  ASSERT_TRUE(RequestedGradScaler(options).has_value());
  EXPECT_EQ(RequestedGradScaler(options)->init_scale, 1024);
  EXPECT_EQ(RequestedGradScaler(options)->growth_interval, 5);
  EXPECT_EQ(RequestedGradScaler(options)->backoff_factor, 0.5);
  options.reduce_dtype = "fp32";
  options.ddp.comm_hook = "powersgd:error_feedback=false,warm_start=false";
  ExpectOk(Validate(options));
}

// What optimizers take; what is refused of them: options_refusal_test.cc.
TEST(OptimizerSettings, NormsAndDecayMayBeOfAnyKind) {
  TrainOptions options;
  options.clip_grad_norm = 1;
  options.clip_grad_norm_type = std::numeric_limits<double>::infinity();
  options.error_if_nonfinite = true;
  options.weight_decay = 0.1;
  options.no_weight_decay_on = "bias$|^bn";
  options.ddp.comm_hook = "powersgd_bf16:warm_start=false";
  ExpectOk(Validate(options));
}

TEST(OptimizerSettings, NanoGptsRecipeIsTaken) {
  TrainOptions options;
  options.optimizer = "adamw";
  options.adam_beta2 = 0.99;
  options.adam_eps = 1e-6;
  options.learning_rate = 1e-3;
  options.min_learning_rate = 1e-4;
  options.lr_schedule = "cosine";
  options.lr_warmup_steps = 100;
  options.weight_decay = 0.1;
  options.clip_grad_norm = 1;
  ExpectOk(Validate(options));
}

TEST(OptimizerSettings, LearningRateFollowsTheOptimizerUnlessGiven) {
  TrainOptions options;
  EXPECT_EQ(ResolvedLearningRate(options), 0.05);
  options.optimizer = "adamw";
  EXPECT_EQ(ResolvedLearningRate(options), 0.001);
  options.learning_rate = 0.3;
  EXPECT_EQ(ResolvedLearningRate(options), 0.3);
  // Which is a rate, too: nothing is learned.
  options.learning_rate = 0;
  EXPECT_EQ(ResolvedLearningRate(options), 0);
  ExpectOk(Validate(options));
}

// Settings may have no use in a job that is known: its folders, its steps, its
// replicas.
void Trace(TrainOptions& options) {
  options.trace_file = "/t.json";
  options.trace_steps = {5, 5};
}

TEST(InitialWeightsTest, LieInAnotherFolderThanCheckpoints) {
  const std::string folder = testing::TempDir() + "/weights";
  const std::string link = testing::TempDir() + "/link_to_weights";
  std::filesystem::create_directories(folder);
  std::filesystem::remove(link);
  std::filesystem::create_directory_symlink(folder, link);
  TrainOptions options;
  options.init_from = folder;
  for (const std::string& same :
       {folder, folder + "/", testing::TempDir() + "/./weights", link}) {
    options.save_dir = same;
    EXPECT_EQ(Validate(options).message(),
              "--save_dir=" + same + " is the folder of --init_from=" + folder +
                  ": the next job would take its checkpoints for the weights "
                  "to begin with: give another --save_dir");
  }
  options.eval_only = true;  // saves nothing
  ExpectOk(Validate(options));
  options.eval_only = false;
  options.save_dir = folder + "/saved";
  ExpectOk(Validate(options));
}

TEST(StepsToTraceTest, AreStillToCome) {
  TrainOptions options;
  EXPECT_TRUE(CheckStepsToTrace(options, 100, 100).ok());  // none is asked for
  Trace(options);
  EXPECT_TRUE(CheckStepsToTrace(options, 0, 5).ok());
  EXPECT_TRUE(CheckStepsToTrace(options, 4, 100).ok());
  EXPECT_EQ(CheckStepsToTrace(options, 5, 100).message(),
            "--trace_file=/t.json would never be written: step 5 "
            "(--trace_steps) is done, as 5 are; it has 6 to 100 before it");
  EXPECT_THAT(CheckStepsToTrace(options, 7, 7),
              Says("is done, as 7 are; it has none before it"));
  // All of several.
  options.trace_steps = {4, 6};
  EXPECT_TRUE(CheckStepsToTrace(options, 3, 6).ok());
  EXPECT_THAT(CheckStepsToTrace(options, 4, 6),
              Says("step 4 (--trace_steps) is done"));
  EXPECT_THAT(CheckStepsToTrace(options, 3, 5),
              Says("step 6 (--trace_steps) does not come"));
}

TEST(OneReplicaTest, HasNoUseForWhatIsBetweenReplicas) {
  const auto message = [](const std::function<void(TrainOptions&)>& give) {
    TrainOptions options;
    give(options);
    ExpectOk(Validate(options));
    return std::string(CheckForOneReplica(options).message());
  };
  EXPECT_EQ(message([](TrainOptions& o) { o.ddp.comm_hook = "fp16"; }),
            "--comm_hook=fp16 is about several replicas, but this job has "
            "one, where it has no effect: leave it out, or start more ranks "
            "(--nproc_per_node)");
  EXPECT_THAT(message([](TrainOptions& o) { o.ddp.static_graph = true; }),
              HasSubstr("--static_graph=true is about several"));
  EXPECT_THAT(message([](TrainOptions& o) { o.check_replicas_every = 2; }),
              HasSubstr("--check_replicas_every=2 is about several"));
  EXPECT_THAT(message([](TrainOptions& o) { o.reduce_dtype = "bf16"; }),
              HasSubstr("--reduce_dtype=bf16 is about several"));
  EXPECT_THAT(
      message([](TrainOptions& o) { o.ddp.average_parameters_every = 4; }),
      HasSubstr("--average_parameters_every=4 is about several"));
}

TEST(OneReplicaTest, HasAUseForItsOwn) {
  TrainOptions options;
  EXPECT_TRUE(CheckForOneReplica(options).ok());
  options.ddp.gradient_accumulation_steps = 4;
  options.ddp.shard = "off";
  options.ddp.average_parameters_every = 4;
  options.ddp.average_parameters_warmup_steps = 2;
  options.ddp.outer_momentum = 0.9;
  ExpectOk(CheckForOneReplica(options));
  TrainOptions served;
  served.strategy = "parameter_server";
  served.ddp.max_staleness = 2;
  ExpectOk(CheckForOneReplica(served));
}

}  // namespace
}  // namespace tandem::options_test
