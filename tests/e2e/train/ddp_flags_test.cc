// Flags of --strategy=ddp: each changes the job, or provably not.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

// Two ranks, four steps.
std::string WeightsAfter(const Flags& flags) {
  Flags job = SmallJob({"--nproc_per_node=2", "--max_steps=4"});
  job.insert(job.end(), flags.begin(), flags.end());
  return Fingerprint(RunJobForEvents(job));
}

struct Effect {
  std::string name;
  Flags base;
  std::string flag;
  bool same;  // as without the flag
};

class FlagTest : public testing::TestWithParam<Effect> {};

TEST_P(FlagTest, HasItsEffect) {
  const Effect& effect = GetParam();
  Flags with = effect.base;
  with.push_back(effect.flag);
  const std::string without = WeightsAfter(effect.base);
  EXPECT_EQ(WeightsAfter(with) == without, effect.same);
}

const Flags kPlain = {};
const Flags kPowerSgd = {"--comm_hook=powersgd", "--power_sgd_start_step=0"};
const Flags kClipped = {"--clip_grad_norm=0.1"};
const Flags kAveraged = {"--average_parameters_every=2"};
const Flags kDecayed = {"--weight_decay=0.1"};
// Steps of 16, 16 and 1 samples: the last one has rank 0's alone.
const Flags kUneven = {"--nodrop_last", "--synthetic_samples=33"};
const Flags kJoined = {"--nodrop_last", "--synthetic_samples=33",
                       "--uneven_inputs=join"};
const Flags kNormalised = {"--model=resnet18", "--synthetic_shape=3,32,32",
                           "--max_steps=2"};

INSTANTIATE_TEST_SUITE_P(
    All, FlagTest,
    testing::Values(
        Effect{"AllReduceHook", kPlain, "--comm_hook=allreduce", true},
        Effect{"PowerSgdInBf16", kPowerSgd, "--comm_hook=powersgd_bf16", false},
        // Too much to ask for: nothing is compressed.
        Effect{"CompressionRate", kPowerSgd,
               "--power_sgd_min_compression_rate=100000", false},
        Effect{"ErrorFeedback", kPowerSgd, "--nopower_sgd_use_error_feedback",
               false},
        Effect{"WarmStart", kPowerSgd, "--nopower_sgd_warm_start", false},
        Effect{"Epsilon", kPowerSgd,
               "--power_sgd_orthogonalization_epsilon=0.1", false},
        Effect{"RandomSeed", kPowerSgd, "--power_sgd_random_seed=7", false},
        Effect{"Join", kUneven, "--uneven_inputs=join", false},
        Effect{"JoinDividedByInitial", kJoined, "--join_divide_by=initial",
               false},
        // One replica is there, and has all samples.
        Effect{"JoinDividedByPresent", kJoined, "--join_divide_by=present",
               true},
        Effect{"SyncBatchNorm", kNormalised, "--sync_batch_norm", false},
        Effect{"NormTypeOne", kClipped, "--clip_grad_norm_type=1", false},
        Effect{"NormTypeInfinity", kClipped, "--clip_grad_norm_type=inf",
               false},
        Effect{"NormTypeTwoIsTheDefault", kClipped, "--clip_grad_norm_type=2",
               true},
        Effect{"FiniteNorm", kClipped, "--error_if_nonfinite", true},
        Effect{"OuterLearningRate", kAveraged, "--outer_learning_rate=0.7",
               false},
        Effect{"OuterMomentum", kAveraged, "--outer_momentum=0.9", false},
        Effect{"NoOuterOptimizer", kAveraged, "--outer_learning_rate=1", true},
        Effect{"NoDecayOnBiases", kDecayed, "--no_weight_decay_on=bias$",
               false}),
    [](const auto& info) { return info.param.name; });

TEST(FlagsTest, HooksThatWrapPowerSgdDiffer) {
  Flags fp16 = kPowerSgd, bf16 = kPowerSgd;
  fp16.push_back("--comm_hook=powersgd_fp16");
  bf16.push_back("--comm_hook=powersgd_bf16");
  EXPECT_NE(WeightsAfter(fp16), WeightsAfter(bf16));
}

TEST(FlagsTest, WithoutCompressionPowerSgdIsTheMean) {
  Flags uncompressed = kPowerSgd;
  uncompressed.push_back("--power_sgd_min_compression_rate=100000");
  EXPECT_EQ(WeightsAfter(uncompressed), WeightsAfter({}));
}

TEST(FlagsTest, NoDecayOnAnythingIsNoDecay) {
  EXPECT_EQ(WeightsAfter({"--weight_decay=0.1", "--no_weight_decay_on=."}),
            WeightsAfter({}));
}

TEST(FlagsTest, ANormThatIsNotFiniteEndsTheJobBeforeItsStep) {
  const ProgramResult result = RunProgram(
      kTrain, SmallJob({"--nproc_per_node=2", "--learning_rate=1e30",
                        "--clip_grad_norm=1", "--error_if_nonfinite"}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot be clipped"));
}

}  // namespace
}  // namespace tandem
