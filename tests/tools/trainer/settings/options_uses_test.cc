// Settings that have no use in a job that is known: its folders, its steps, its
// replicas.

#include <filesystem>
#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/trainer/settings/options.h"

namespace tandem::options_uses_test {
namespace {

using ::testing::HasSubstr;

void Trace(TrainOptions& options) {
  options.trace_file = "/t.json";
  options.trace_step = 5;
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
