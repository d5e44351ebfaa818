// What lines, settings and checkpoints tell of techniques: gradient norms,
// FLOP/s, further losses, profiles, who keeps the optimizer's state.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::reports_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<double> Norms(const JobRun& run) {
  std::vector<double> norms;
  for (const auto& step : EventsOf(run.events, "step")) {
    norms.push_back(step.value("gradient_norm", -1.0));
  }
  return norms;
}

void SameNorms(const JobRun& run, const JobRun& expected) {
  ASSERT_EQ(Norms(expected).size(), 6u);
  for (const double norm : Norms(expected)) EXPECT_GT(norm, 0);
  EXPECT_EQ(Norms(run), Norms(expected));
}

TEST(MeasuresTest, EveryLineHasTheNormInEveryLayoutTheSame) {
  ExpectSame({"Norms",
              Small("--reproducible --microbatch_size=2"),
              {"--nproc_per_node=2", "--nproc_per_node=2 --shard=optimizer",
               "--devices_per_rank=2 --strategy=pipeline",
               "--nproc_per_node=2 --pipe=2 --schedule=zb_h1",
               "--nproc_per_node=4 --pipe=2"},
              SameNorms});
}

TEST(MeasuresTest, ALineHasTheNormOfItsOwnStep) {
  const std::vector<double> all = Norms(RunOnce(Small()));
  const JobRun& some = RunOnce(Small("--log_every=4"));
  EXPECT_EQ(Norms(some), (std::vector<double>{all[3], all[5]}));
  EXPECT_THAT(some.program.out, HasSubstr("  gradient norm "));
}

TEST(MeasuresTest, DevicesMeasureItWithoutAWait) {
  const std::vector<double> expected = Norms(RunOnce(Small()));
  const JobRun& run = RunOnce(Small("--device=sim --sim_async"));
  const std::vector<double> norms = Norms(run);
  ASSERT_EQ(norms.size(), expected.size());
  for (size_t i = 0; i < norms.size(); ++i) {
    EXPECT_NEAR(norms[i], expected[i], 1e-5 * expected[i]) << i;
  }
  EXPECT_THAT(run.program.out, HasSubstr("host waits a step  none"));
}

// Eight linear layers: 64 -> 64, six times 64 -> 64, 64 -> 10.
constexpr double kFlopsOfASample = 3 * 2.0 * (7 * 64 * 64 + 64 * 10);

TEST(MeasuresTest, FlopsAreThreeTimesTheForwardPasss) {
  const JobRun& run = RunOnce(Small());
  EXPECT_EQ(run.events.front()["flops_per_sample"], kFlopsOfASample);
  for (const auto& step : EventsOf(run.events, "step")) {
    const double samples = step["samples_per_s"];
    EXPECT_NEAR(step["flops_per_s"].get<double>(), samples * kFlopsOfASample,
                1e-6 * samples * kFlopsOfASample);
    EXPECT_FALSE(step.contains("mfu"));
  }
  EXPECT_THAT(run.program.out, HasSubstr("FLOP/s  "));
  EXPECT_THAT(run.program.out, Not(HasSubstr("MFU")));
}

// What is computed a second time is not the model's.
TEST(MeasuresTest, UtilizationIsOfAllDevicesAndCountsNothingTwice) {
  const JobRun& run =
      RunOnce(Small("--peak_tflops=0.001 --nproc_per_node=2 "
                    "--devices_per_rank=2 --checkpoint_layers=fc"));
  EXPECT_EQ(run.events.front()["flops_per_sample"], kFlopsOfASample);
  for (const auto& step : EventsOf(run.events, "step")) {
    const double flops = step["flops_per_s"];
    EXPECT_NEAR(step["mfu"].get<double>(), flops / (4 * 1e9),
                1e-6 * flops / 4e9);
  }
  EXPECT_THAT(run.program.out, HasSubstr("  MFU "));
}

double ZLoss(const nlohmann::json& step) {
  return step["auxiliary_losses"]["z_loss"].get<double>();
}

void SameFirstZLoss(const JobRun& run, const JobRun& expected) {
  const Events steps = EventsOf(run.events, "step");
  const Events wanted = EventsOf(expected.events, "step");
  ASSERT_EQ(steps.size(), wanted.size());
  EXPECT_NEAR(ZLoss(steps[0]), ZLoss(wanted[0]), 1e-4 * ZLoss(wanted[0]));
}

// --z_loss is a second term of the loss.
TEST(FurtherLossTest, IsTrainedAndReportedByName) {
  const Flags job = Tiny("mlp_small", "--z_loss=0.01");
  const JobRun& one = RunOnce(job);
  const Events steps = EventsOf(one.events, "step");
  ASSERT_EQ(steps.size(), static_cast<size_t>(kTinySteps));
  EXPECT_GT(ZLoss(steps[0]), 0.005);  // of ten classes, log(10)^2 / 100 about
  const JobRun& without = RunOnce(Tiny("mlp_small"));
  OtherBits(one, without);
  // The loss beside it is what it is without, before it has moved a weight.
  const Events plain = EventsOf(without.events, "step");
  EXPECT_EQ(plain[0]["loss"], steps[0]["loss"]);
  EXPECT_FALSE(plain[0].contains("auxiliary_losses"));
  ExpectSame({"FurtherLoss",
              job,
              {"--nproc_per_node=2", "--strategy=pipeline --devices_per_rank=2",
               "--strategy=pipeline --nproc_per_node=2 --pipe=2 "
               "--checkpoint_activations=always",
               "--strategy=hybrid --nproc_per_node=2 --devices_per_rank=2 "
               "--schedule=zb_h1",
               "--strategy=hybrid --nproc_per_node=4 --pipe=2"},
              SameFirstZLoss});
}

// Weights stay as they are, so that the loss is all that differs.
TEST(LabelSmoothingTest, IsTrainedAndNotEvaluated) {
  const Flags job = Tiny("gpt_tiny_tied", "--learning_rate=0");
  const JobRun& plain = RunOnce(job);
  const JobRun& smoothed = RunOnce(Joined(job, {"--label_smoothing=0.1"}));
  const Events expected = EventsOf(plain.events, "step");
  const Events steps = EventsOf(smoothed.events, "step");
  ASSERT_EQ(steps.size(), expected.size());
  EXPECT_NE(steps[0]["loss"], expected[0]["loss"]);
  EXPECT_EQ(steps[0]["accuracy"], expected[0]["accuracy"]);
  // What is smoothed is not the text's own loss.
  EXPECT_TRUE(expected[0].contains("perplexity"));
  EXPECT_FALSE(steps[0].contains("perplexity"));
  const nlohmann::json evaluation = EventsOf(smoothed.events, "eval").back();
  const nlohmann::json wanted = EventsOf(plain.events, "eval").back();
  EXPECT_EQ(evaluation["loss"], wanted["loss"]);
  EXPECT_EQ(evaluation["perplexity"], wanted["perplexity"]);
}

// The learning rate falls by the step, whoever takes it.
TEST(LabelSmoothingTest, HasOneDevicesBitsWithAScheduleInEveryLayout) {
  ExpectSame({"SmoothedAndScheduled",
              Tiny("mlp_dropout",
                   "--label_smoothing=0.1 --z_loss=0.01 --lr_schedule=wsd "
                   "--lr_wsd_decay_steps=2 --lr_wsd_decay_style=cosine "
                   "--reproducible --microbatch_size=2"),
              {"--nproc_per_node=2", "--nproc_per_node=4 --pipe=2",
               "--devices_per_rank=2 --schedule=zb_h1"},
              SameLines});
}

// Two replicas share 16 samples, in microbatches of 4, and relu1 keeps 64
// numbers of each sample.
TEST(ProfileTest, IsOfAReplicasMicrobatch) {
  const JobRun& run =
      RunOnce(Tiny("mlp_small",
                   "--batch_size=16 --strategy=hybrid --nproc_per_node=2 "
                   "--devices_per_rank=2 --microbatches=2 --balance=profile"));
  EXPECT_THAT(run.program.out,
              ContainsRegex("relu1 [^\n]* 0 B +1 KiB +[01]\n"));
}

// With --loss_chunk the head's products are the loss's.
TEST(ProfileTest, IsOfALossThatTakesAWeight) {
  for (const char* model : {"gpt_tiny", "gpt_tiny_tied"}) {
    const JobRun& run =
        RunOnce(Tiny(model,
                     "--dataset=synthetic_tokens --synthetic_shape=8 "
                     "--batch_size=16 --strategy=pipeline --devices_per_rank=2 "
                     "--microbatches=2 --loss_chunk=8 --balance=profile"));
    EXPECT_THAT(run.program.out, ContainsRegex("lm_head [^\n]* +1\n")) << model;
  }
}

TEST(SizesTest, ByFlagsTakeThePlaceOfTheNamedOnes) {
  const Events events = RunJobForEvents(
      Joined(Words("--model=llama_tiny --dataset=synthetic_tokens "
                   "--context=16 --synthetic_samples=48 --batch_size=16 "
                   "--optimizer=adam --max_steps=3 --save_dir= --log_every=1"),
             TestBackendFlags(),
             Words("--layers=1 --width=32 --heads=4 --kv_heads=1 "
                   "--ffn_width=48")));
  const std::vector<double> losses = StepLosses(events);
  ASSERT_EQ(losses.size(), 3u);
  EXPECT_NEAR(losses[0], 5.55, 0.1);  // the logarithm of 256
}

// What the settings say of the optimizer's state, by flags.
TEST(ShardedOptimizerTest, SettingsSayWhoKeepsTheStateAndWhy) {
  const char* const cases[][2] = {
      {"", "sharing pays from 1000000 on"},
      {"--shard=optimizer", "shared by 2 replicas"},
      {"--model=mlp_wide --optimizer=adamw", "shared by 2 replicas"},
      {"--model=mlp_wide --optimizer=muon", "shared by 2 replicas"},
      {"--model=mlp_wide", "so little state"},
      {"--model=mlp_wide --backend=gloo", "do not share memory"},
      {"--model=mlp_wide --static_graph", "ddp.static_graph"},
      {"--shard=off", "not asked for"}};
  for (const auto& [flags, says] : cases) {
    const Events events = RunJobForEvents(
        Joined(Small("--nproc_per_node=2 --max_steps=2"), Words(flags)));
    const std::string state =
        EventsOf(events, "settings").front()["optimizer_state"];
    EXPECT_THAT(state, HasSubstr(says)) << flags;
  }
}

// Whichever of the tied weight's names the pattern has, and in parts, too.
TEST(VocabularyInPartsTest, TheSameParametersDecay) {
  const Flags job = Joined(
      Words("--model=gpt_tiny_tied --dataset=synthetic_tokens --context=8 "
            "--synthetic_samples=32 --batch_size=8 --optimizer=adamw "
            "--reproducible --microbatch_size=4 --epochs=1 --save_dir= "
            "--log_every=1"),
      TestBackendFlags(), {"--weight_decay=0.5"});
  const auto exempt = [](const JobRun& run) -> std::string {
    return EventsOf(run.events, "settings").front()["exempt_from_decay"];
  };
  const std::string one = "--no_weight_decay_on=wte.weight$";
  const std::string other = "--no_weight_decay_on=lm_head.weight$";
  EXPECT_THAT(exempt(RunOnce(Joined(job, {one}))), HasSubstr("1 of "));
  ExpectSame({"ByAlias", job, {other}, SameBits, {""}, one});
  ExpectSame({"InParts",
              job,
              {one + " --vocab_parallel=2", other + " --vocab_parallel=2"},
              Both(SameLosses(1e-5),
                   [&](const JobRun& parts, const JobRun& plain) {
                     EXPECT_EQ(exempt(parts), exempt(plain));
                   }),
              {""},
              one});
}

}  // namespace
}  // namespace tandem::reports_test
