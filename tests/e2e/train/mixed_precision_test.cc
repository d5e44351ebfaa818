// Jobs in bf16 beside the same jobs in fp32.

#include <chrono>
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

std::vector<double> LossesOf(const Events& events) {
  std::vector<double> losses;
  for (const auto& step : EventsOf(events, "step")) {
    losses.push_back(step["loss"]);
  }
  return losses;
}

// A job whose loss falls a long way in few steps, each loss the mean of some.
struct Curve {
  Flags job;
  double falls_to;  // of the first mean, at most
  double distance;  // between two means at the same step, at most
};

void ExpectTheSameCurve(const Curve& curve) {
  const Events fp32 = RunJobForEvents(curve.job);
  // Processors without instructions for bf16 take seconds a step.
  ProgramOptions patient;
  patient.timeout = std::chrono::minutes(8);
  const Events bf16 = RunJobForEvents(Joined(curve.job, {"--dtype=bf16"}),
                                      /*program=*/nullptr, patient);
  EXPECT_EQ(bf16.front()["dtype"], "bf16");
  const std::vector<double> expected = LossesOf(fp32);
  const std::vector<double> found = LossesOf(bf16);
  ASSERT_EQ(found.size(), expected.size());
  EXPECT_LT(expected.back(), curve.falls_to * expected.front());
  double furthest = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    furthest = std::max(furthest, std::abs(found[i] - expected[i]));
  }
  EXPECT_LE(furthest, curve.distance);
  // Products were computed otherwise, or all this shows nothing.
  EXPECT_GT(furthest, 0);
}

// Rounding to 8 bits moves a loss by some thousandths; what two orders of the
// same samples differ by is ten times that.
TEST(MixedPrecisionTest, FashionMnistsLossFallsAsInFp32) {
  ExpectTheSameCurve({{"--model=mlp_wide", "--max_steps=30", "--log_every=10",
                       "--learning_rate=0.02", "--save_dir="},
                      /*falls_to=*/0.5,
                      /*distance=*/0.01});
}

TEST(MixedPrecisionTest, TokensLossFallsAsInFp32) {
  ExpectTheSameCurve(
      {{"--model=gpt_tiny", "--dataset=synthetic_tokens", "--batch_size=16",
        "--synthetic_shape=32", "--optimizer=adamw", "--learning_rate=0.002",
        "--max_steps=30", "--log_every=10", "--save_dir="},
       /*falls_to=*/0.5,
       /*distance=*/0.01});
}

// Master weights and the optimizer's state: a checkpoint does not tell what
// products were computed in.
TEST(MixedPrecisionTest, ACheckpointHoldsFp32AndResumesInEitherPrecision) {
  const std::string folder = NewFolder("bf16");
  const Flags job = SmallJob({"--save_dir=" + folder, "--optimizer=adamw",
                              "--dtype=bf16", "--max_steps=3"});
  RunJobForEvents(job);
  const std::string checkpoint = folder + "/step-000000003";
  const ProgramResult shown = RunProgram(kInspect, {checkpoint});
  EXPECT_THAT(shown.out, HasSubstr("F32"));
  EXPECT_THAT(shown.out, ::testing::Not(HasSubstr("BF16")));

  const Flags rest = {"--resume=" + checkpoint, "--max_steps=6", "--save_dir="};
  const std::string whole = Fingerprint(
      RunJobForEvents(Joined(job, {"--max_steps=6", "--save_dir="})));
  EXPECT_EQ(Fingerprint(RunJobForEvents(Joined(job, rest))), whole);
  // By the name that transformers has for it.
  EXPECT_EQ(Fingerprint(RunJobForEvents(
                Joined(Joined(job, rest), {"--dtype=bfloat16"}))),
            whole);
  EXPECT_NE(
      Fingerprint(RunJobForEvents(Joined(Joined(job, rest), {"--dtype=fp32"}))),
      whole);
}

TEST(MixedPrecisionTest, EveryLayoutHasOneDevicesBitsIfReproducible) {
  const Flags job = SmallJob({"--reproducible", "--microbatch_size=2",
                              "--dtype=bf16", "--device=sim"});
  const std::string one = Fingerprint(RunJobForEvents(job));
  for (const Flags& layout :
       std::vector<Flags>{{"--nproc_per_node=2"},
                          {"--devices_per_rank=2", "--schedule=zb_h1"},
                          {"--nproc_per_node=2", "--devices_per_rank=2"}}) {
    EXPECT_EQ(Fingerprint(RunJobForEvents(Joined(job, layout))), one)
        << testing::PrintToString(layout);
  }
  EXPECT_NE(Fingerprint(RunJobForEvents(Joined(job, {"--dtype=fp32"}))), one);
}

TEST(MixedPrecisionTest, GradientsTravelInReduceDtype) {
  const Flags job = SmallJob({"--nproc_per_node=2", "--max_steps=3"});
  const std::string fp32 = Fingerprint(RunJobForEvents(job));
  const std::string bf16 =
      Fingerprint(RunJobForEvents(Joined(job, {"--reduce_dtype=bf16"})));
  EXPECT_NE(bf16, fp32);
  // As the communication hook does it.
  EXPECT_EQ(Fingerprint(RunJobForEvents(Joined(job, {"--comm_hook=bf16"}))),
            bf16);
}

}  // namespace
}  // namespace tandem
