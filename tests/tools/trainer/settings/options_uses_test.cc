// Settings that would do nothing beside others: refused by name. Every flag of
// the program, in every strategy: tests/tools/flag_uses_test.cc.

#include <filesystem>
#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/trainer/settings/options.h"

namespace tandem::options_uses_test {
namespace {

using ::testing::HasSubstr;

struct Useless {
  std::function<void(TrainOptions&)> give;
  const char* message;
};

class UselessOptionTest : public testing::TestWithParam<Useless> {};

TEST_P(UselessOptionTest, IsRefusedByName) {
  TrainOptions options;
  GetParam().give(options);
  EXPECT_THAT(std::string(Validate(options).message()),
              HasSubstr(GetParam().message));
}

void Trace(TrainOptions& options) {
  options.trace_file = "/t.json";
  options.trace_step = 5;
}

INSTANTIATE_TEST_SUITE_P(
    All, UselessOptionTest,
    testing::Values(
        Useless{[](TrainOptions& o) { o.synthetic_classes = 5; },
                "--synthetic_classes=5 is for --dataset=synthetic, but "
                "--dataset=fashion_mnist"},
        Useless{[](TrainOptions& o) {
                  o.synthetic_classes = 5;
                  o.dataset = "synthetic_tokens";
                },
                "but --dataset=synthetic_tokens"},
        Useless{[](TrainOptions& o) {
                  o.vocab_parallel = 2;
                  o.strategy = "parameter_server";
                },
                "--vocab_parallel=2 is for replicas that have no servers, but "
                "--strategy=parameter_server was given"},
        Useless{[](TrainOptions& o) {
                  o.reduce_dtype = "bf16";
                  o.strategy = "parameter_server";
                },
                "--reduce_dtype=bf16 is of gradients between replicas"},
        Useless{[](TrainOptions& o) {
                  o.ddp.bucket_cap_mb = 5;
                  o.ddp.bucket_cap_mb_list = {1, 5};
                },
                "--bucket_cap_mb=5 and --bucket_cap_mb_list both say"},
        Useless{[](TrainOptions& o) {
                  o.kernels = "fixed";
                  o.kernel_cache = "/k";
                },
                "--kernel_cache=/k keeps kernels that are measured, but "
                "--kernels=fixed"},
        Useless{[](TrainOptions& o) {
                  o.pipeline.reproducible = true;
                  o.pipeline.microbatch_size = 4;
                  o.kernel_cache = "/k";
                },
                "but --reproducible has a rule choose them"},
        Useless{[](TrainOptions& o) {
                  o.devices.device = "sim";
                  o.devices.sim_async = true;
                  o.devices.sim_delay_seed = 5;
                },
                "--sim_delay_seed=5 is of --sim_delay_us, which is 0"},
        Useless{[](TrainOptions& o) { o.trace_step = 5; },
                "--trace_step=5 says which step --trace_file shows"},
        Useless{[](TrainOptions& o) {
                  Trace(o);
                  o.max_steps = 4;
                },
                "--trace_file=/t.json would never be written: step 5 "
                "(--trace_step) does not come, as the job ends after 4; it has "
                "1 to 4 before it"},
        Useless{[](TrainOptions& o) {
                  Trace(o);
                  o.eval_only = true;
                  o.resume = "/checkpoint";
                },
                "--trace_file=/t.json shows a step of training"}));

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
  EXPECT_TRUE(Validate(options).ok()) << Validate(options);
  options.eval_only = false;
  options.save_dir = folder + "/saved";
  EXPECT_TRUE(Validate(options).ok()) << Validate(options);
}

TEST(StepToTraceTest, IsOneThatIsStillToCome) {
  TrainOptions options;
  EXPECT_TRUE(CheckStepToTrace(options, 100, 100).ok());  // none is asked for
  Trace(options);
  EXPECT_TRUE(CheckStepToTrace(options, 0, 5).ok());
  EXPECT_TRUE(CheckStepToTrace(options, 4, 100).ok());
  EXPECT_EQ(CheckStepToTrace(options, 5, 100).message(),
            "--trace_file=/t.json would never be written: step 5 "
            "(--trace_step) is done, as 5 are; it has 6 to 100 before it");
  EXPECT_THAT(std::string(CheckStepToTrace(options, 7, 7).message()),
              HasSubstr("is done, as 7 are; it has none before it"));
}

TEST(OneReplicaTest, HasNoUseForWhatIsBetweenReplicas) {
  const auto message = [](const std::function<void(TrainOptions&)>& give) {
    TrainOptions options;
    give(options);
    EXPECT_TRUE(Validate(options).ok()) << Validate(options);
    return std::string(CheckForOneReplica(options).message());
  };
  EXPECT_EQ(message([](TrainOptions& o) { o.ddp.comm_hook = "fp16"; }),
            "--comm_hook=fp16 is about several replicas, but this job has "
            "one, which does nothing by it: leave it out, or start more ranks "
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
  options.ddp.shard_optimizer = "off";
  options.ddp.average_parameters_every = 4;
  options.ddp.average_parameters_warmup_steps = 2;
  options.ddp.outer_momentum = 0.9;
  EXPECT_TRUE(CheckForOneReplica(options).ok()) << CheckForOneReplica(options);
  TrainOptions served;
  served.strategy = "parameter_server";
  served.ddp.max_staleness = 2;
  EXPECT_TRUE(CheckForOneReplica(served).ok()) << CheckForOneReplica(served);
}

}  // namespace
}  // namespace tandem::options_uses_test
