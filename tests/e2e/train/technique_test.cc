// Techniques in layouts: which change what is trained, which do not change a
// bit, and which change roundings alone.

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::technique_test {
namespace {

using Rows = std::vector<SameRow>;

class TechniqueTest : public testing::TestWithParam<SameRow> {};

TEST_P(TechniqueTest, InLayouts) { ExpectSame(GetParam()); }

// Two ranks, four steps, with --strategy=ddp: each flag changes the job, or
// provably not.
SameRow Ddp(const std::string& name, const std::string& base,
            const std::string& other, const Comparison& comparison) {
  return {name,
          Small("--nproc_per_node=2 --max_steps=4 " + base),
          {other},
          comparison};
}

constexpr char kPowerSgd[] = "--comm_hook=powersgd:start=0";
// Too much to ask for: nothing is compressed.
constexpr char kUncompressed[] = "--comm_hook=powersgd:start=0,min_rate=100000";

Rows DdpRows() {
  const std::string power = kPowerSgd, clipped = "--clip_grad_norm=0.1";
  const std::string averaged = "--average_parameters_every=2";
  // Steps of 16, 16 and 1 samples: the last one has rank 0's alone.
  const std::string uneven = "--nodrop_last --synthetic_samples=33";
  const std::string joined = uneven + " --uneven_inputs=join";
  Rows rows = {
      Ddp("AllReduceHook", "", "--comm_hook=allreduce", SameBits),
      Ddp("PowerSgdInBf16", power, "--comm_hook=powersgd_bf16:start=0",
          OtherBits),
      Ddp("CompressionRate", power, kUncompressed, OtherBits),
      Ddp("ErrorFeedback", power, power + ",error_feedback=false", OtherBits),
      Ddp("WarmStart", power, power + ",warm_start=false", OtherBits),
      Ddp("Epsilon", power, power + ",epsilon=0.1", OtherBits),
      Ddp("RandomSeed", power, power + ",seed=7", OtherBits),
      Ddp("RankOfMatrices", power, power + ",rank=2", OtherBits),
      Ddp("Join", uneven, "--uneven_inputs=join", OtherBits),
      Ddp("JoinDividedByInitial", joined, "--join_divide_by=initial",
          OtherBits),
      // One replica is there, and has all samples.
      Ddp("JoinDividedByPresent", joined, "--join_divide_by=present", SameBits),
      Ddp("SyncBatchNorm",
          "--model=resnet18 --synthetic_shape=3,32,32 --max_steps=2",
          "--sync_batch_norm", OtherBits),
      Ddp("NormTypeOne", clipped, "--clip_grad_norm_type=1", OtherBits),
      Ddp("NormTypeInfinity", clipped, "--clip_grad_norm_type=inf", OtherBits),
      Ddp("NormTypeTwoIsTheDefault", clipped, "--clip_grad_norm_type=2",
          SameBits),
      Ddp("FiniteNorm", clipped, "--error_if_nonfinite", SameBits),
      Ddp("OuterLearningRate", averaged, "--outer_learning_rate=0.7",
          OtherBits),
      Ddp("OuterMomentum", averaged, "--outer_momentum=0.9", OtherBits),
      Ddp("NoOuterOptimizer", averaged, "--outer_learning_rate=1", SameBits),
      Ddp("NoDecayOnBiases", "--weight_decay=0.1", "--no_weight_decay_on=bias$",
          OtherBits),
      Ddp("WithoutCompressionPowerSgdIsTheMean", "", kUncompressed, SameBits),
      Ddp("NoDecayOnAnythingIsNoDecay", "",
          "--weight_decay=0.1 --no_weight_decay_on=.", SameBits),
      Ddp("HooksThatWrapPowerSgdDiffer", power,
          "--comm_hook=powersgd_bf16:start=0", OtherBits),
  };
  rows.back().beside = "--comm_hook=powersgd_fp16:start=0";
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Ddp, TechniqueTest, testing::ValuesIn(DdpRows()),
                         RowName<SameRow>);

Rows HybridRows() {
  SameRow checkpointed = {
      "CheckpointedLayersChangeNoBit",
      Tiny("gpt_tiny_tied"),
      {"--checkpoint_layers=h\\.[02]$", "--checkpoint_every=2"}};
  // Whatever the strategy: replicas, pipelines, one device, a model in parts.
  checkpointed.places = {
      "--nproc_per_node=2",
      "--strategy=pipeline --devices_per_rank=2",
      "--strategy=pipeline --nproc_per_node=2 --pipe=2 "
      "--checkpoint_activations=always",
      "--strategy=hybrid --nproc_per_node=2 --devices_per_rank=2 "
      "--schedule=zb_h1",
      "--strategy=hybrid --nproc_per_node=4 --pipe=2",
      "--strategy=single",
      "--strategy=model_parallel --devices_per_rank=2"};
  return {
      checkpointed,
      {"AFurtherLossIsReproducible",
       Tiny("mlp_dropout",
            "--z_loss=0.01 --reproducible --microbatch_size=2 "
            "--batch_size=16 --synthetic_samples=64"),
       {"--nproc_per_node=2 --pipe=2", "--nproc_per_node=4 --pipe=2",
        "--nproc_per_node=2 --devices_per_rank=2"},
       SameLines},
      // Where every parameter is used, looking for others changes nothing.
      // tests/parallel/strategy/unused_parameters_test.cc has some that are
      // not.
      {"FindUnusedParametersChangesNoBit",
       Tiny("gpt_tiny_tied"),
       {"--find_unused_parameters"},
       SameBits,
       {"--strategy=hybrid --nproc_per_node=2",
        "--strategy=hybrid --nproc_per_node=2 --devices_per_rank=2 "
        "--schedule=zb_h1",
        "--reproducible --microbatch_size=2 --nproc_per_node=2"}},
      {"ChannelsLastHasTheLossesWithinRounding",
       Small("--model=cnn --max_steps=4"),
       {"--channels_last"},
       SameLastLoss(1e-4),
       {"", "--nproc_per_node=2",
        "--devices_per_rank=2 --strategy=pipeline --device=sim"}},
  };
}

INSTANTIATE_TEST_SUITE_P(Hybrid, TechniqueTest, testing::ValuesIn(HybridRows()),
                         RowName<SameRow>);

// Replicas on the devices of one process, and on those of each rank.
Rows DataParallelRows() {
  const std::vector<std::pair<std::string, std::string>> jobs = {
      {"Plain", ""},
      {"AdamWithClippingAndAccumulation",
       "--optimizer=adamw --clip_grad_norm=0.5 "
       "--gradient_accumulation_steps=2"},
      {"DropoutBySample", "--model=mlp_dropout"},
      {"Muon", "--optimizer=muon"},
      {"TiedWeights",
       "--model=gpt_tiny_tied --dataset=synthetic_tokens "
       "--synthetic_shape=8 --synthetic_samples=24 "
       "--batch_size=8"}};
  const std::string strategy = "--strategy=data_parallel ";
  Rows rows;
  for (const auto& [name, flags] : jobs) {
    rows.push_back({"DataParallel" + name,
                    Small(flags),
                    {strategy + "--devices_per_rank=2",
                     strategy + "--devices_per_rank=3 --device=sim",
                     strategy + "--devices_per_rank=2 --device=sim --sim_async "
                                "--sim_delay_us=50"},
                    Both(SameLosses(1e-4, "step"),
                         HasStrategy("data_parallel", "single"))});
    rows.push_back(
        {"DataParallelRanks" + name,
         Small(flags + " --nproc_per_node=2"),
         {strategy + "--devices_per_rank=2 --device=sim"},
         Both(SameLosses(1e-4, "step"), HasStrategy("data_parallel", "ddp"))});
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(DataParallel, TechniqueTest,
                         testing::ValuesIn(DataParallelRows()),
                         RowName<SameRow>);

// What is trained stays as it is.
void OtherEvaluation(const JobRun& run, const JobRun& expected) {
  EXPECT_NE(EventsOf(run.events, "eval").back()["loss"],
            EventsOf(expected.events, "eval").back()["loss"]);
}

Rows EmaRows() {
  const std::vector<std::string> places = {
      "--nproc_per_node=2", "--nproc_per_node=2 --pipe=2",
      "--nproc_per_node=4 --pipe=2 --shard=optimizer", "--devices_per_rank=2",
      "--strategy=data_parallel --devices_per_rank=2"};
  SameRow trained = {"AveragesChangeNoTrainedBit",
                     Small("--max_steps=4"),
                     {"--ema_decay=0.75"},
                     Both(SameBits, OtherEvaluation),
                     places};
  trained.places.push_back("--dtype=bf16");
  trained.places.push_back("--dtype=fp16");
  return {trained,
          {"AveragesHaveTheirLossInEveryLayout",
           Small("--max_steps=4 --ema_decay=0.75"), places,
           SameLosses(1e-4, "eval")}};
}

INSTANTIATE_TEST_SUITE_P(Ema, TechniqueTest, testing::ValuesIn(EmaRows()),
                         RowName<SameRow>);

// A loss falls a long way in few steps, each loss the mean of some. Rounding to
// 8 bits moves it by some thousandths; what two orders of the same samples
// differ by is ten times that.
void SameCurve(const JobRun& bf16, const JobRun& fp32) {
  EXPECT_EQ(bf16.events.front()["dtype"], "bf16");
  const std::vector<double> expected = StepLosses(fp32.events);
  const std::vector<double> found = StepLosses(bf16.events);
  ASSERT_EQ(found.size(), expected.size());
  EXPECT_LT(expected.back(), 0.5 * expected.front());
  double furthest = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    furthest = std::max(furthest, std::abs(found[i] - expected[i]));
  }
  EXPECT_LE(furthest, 0.01);
  // Products were computed otherwise, or all this shows nothing.
  EXPECT_GT(furthest, 0);
}

Rows Bf16Rows() {
  const Flags two = Small("--nproc_per_node=2 --max_steps=3");
  const Flags reproducible =
      Small("--reproducible --microbatch_size=2 --dtype=bf16 --device=sim");
  return {
      {"FashionMnistsLossFallsAsInFp32",
       Words("--model=mlp_wide --max_steps=30 --log_every=10 "
             "--learning_rate=0.02 --save_dir="),
       {"--dtype=bf16"},
       SameCurve},
      {"TokensLossFallsAsInFp32",
       Words("--model=gpt_tiny --dataset=synthetic_tokens --batch_size=16 "
             "--synthetic_shape=32 --optimizer=adamw --learning_rate=0.002 "
             "--max_steps=30 --log_every=10 --save_dir="),
       {"--dtype=bf16"},
       SameCurve},
      {"Bf16HasOneDevicesBitsInEveryLayout",
       reproducible,
       {"--nproc_per_node=2", "--devices_per_rank=2 --schedule=zb_h1",
        "--nproc_per_node=2 --devices_per_rank=2"}},
      {"Fp32HasOtherBitsThanBf16", reproducible, {"--dtype=fp32"}, OtherBits},
      {"GradientsTravelInReduceDtype", two, {"--reduce_dtype=bf16"}, OtherBits},
      // The communication hook does the same.
      {"GradientsTravelInReduceDtypeAsByTheHook",
       two,
       {"--comm_hook=bf16"},
       SameBits,
       {""},
       "--reduce_dtype=bf16"},
  };
}

INSTANTIATE_TEST_SUITE_P(Bf16, TechniqueTest, testing::ValuesIn(Bf16Rows()),
                         RowName<SameRow>);

Flags TokensJob(const std::string& flags, const std::string& more) {
  return Joined(
      Words("--dataset=synthetic_tokens --save_dir= --log_every=1 " + flags),
      TestBackendFlags(), Words(more));
}

Flags TransformerJob(const std::string& model, const std::string& more = "") {
  return TokensJob("--model=" + model +
                       " --context=16 --synthetic_samples=48 --batch_size=16 "
                       "--optimizer=adam --max_steps=3",
                   more);
}

void HasAnEvaluation(const JobRun&, const JobRun& expected) {
  EXPECT_EQ(EventsOf(expected.events, "eval").size(), 1u);
}

// Four steps an epoch.
Flags VocabularyJob(const std::string& more = "") {
  return TokensJob(
      "--model=gpt_tiny_tied --context=8 --synthetic_samples=32 "
      "--batch_size=8 --optimizer=adamw --reproducible --microbatch_size=4 "
      "--epochs=1",
      more);
}

Rows TransformerRows() {
  Rows rows;
  for (const char* model : {"llama_tiny", "llama_tiny_tied", "gpt_tiny_tied"}) {
    rows.push_back(
        {std::string("TheLossInChunksIsThePlainOne_") + model,
         TransformerJob(model),
         {"--loss_chunk=100"},
         Both(Both(HasSteps(3), HasAnEvaluation), SameLosses(1e-5))});
  }
  // Draws are a function of the sample, whoever computes it and however often.
  const Flags dropping = TransformerJob("gpt_tiny",
                                        "--dropout=0.2 --reproducible "
                                        "--microbatch_size=2 --max_steps=2");
  const Rows more = {
      {"TheLossInChunksHasTheSameBitsInEveryLayout",
       TransformerJob("llama_tiny_tied",
                      "--loss_chunk=24 --reproducible --microbatch_size=4"),
       {"--nproc_per_node=2", "--nproc_per_node=2 --pipe=2"}},
      {"TheLossInChunksIsThePlainOneInLayoutsThatAreNotEqual",
       TransformerJob("llama_tiny"),
       {"--loss_chunk=100 --nproc_per_node=2",
        "--loss_chunk=100 --devices_per_rank=2",
        "--loss_chunk=100 --devices_per_rank=2 --strategy=pipeline "
        "--microbatches=4 --schedule=zb_h1",
        "--loss_chunk=100 --checkpoint_every=2"},
       SameLosses(1e-4)},
      {"DropoutChangesTheBits", dropping, {"--dropout=0"}, OtherBits},
      {"DropoutDropsTheSameInEveryLayout",
       dropping,
       {"--nproc_per_node=2 --checkpoint_every=2",
        "--nproc_per_node=2 --pipe=2 --schedule=zb_h1"}},
      {"VocabularyInPartsHasThePlainLoss",
       VocabularyJob(),
       {"--vocab_parallel=2"},
       SameLosses(1e-5)},
      // Parts on two ranks, and all of them on each device of two replicas,
      // which share the optimizer's state.
      {"VocabularyInPartsHasTheBitsOfOneDevice",
       VocabularyJob("--vocab_parallel=2"),
       {"--nproc_per_node=2 --pipe=2 --schedule=zb_h1",
        "--nproc_per_node=2 --shard=optimizer"}},
  };
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Transformer, TechniqueTest,
                         testing::ValuesIn(TransformerRows()),
                         RowName<SameRow>);

// --nodrop_last: the samples at an epoch's end are trained on, too.
Flags LastSamples(const std::string& model, int samples,
                  const std::string& more = "") {
  return Joined(Tiny(model,
                     "--nodrop_last --batch_size=16 "
                     "--synthetic_samples=" +
                         std::to_string(samples)),
                Words(more));
}

void DropsTheLastSamples(const JobRun& dropping, const JobRun& taking) {
  EXPECT_EQ(EventsOf(taking.events, "step").size(), 3u);
  EXPECT_EQ(taking.events.front()["drop_last"], false);
  EXPECT_EQ(EventsOf(dropping.events, "step").size(), 2u);
  OtherBits(dropping, taking);
}

Rows LastSampleRows() {
  Rows rows;
  // One sample left, a prime number, all but one.
  for (const std::string model : {"mlp_dropout", "gpt_tiny_tied"}) {
    for (const int samples : {33, 45, 47}) {
      rows.push_back(
          {"LastStep_" + model + "_" + std::to_string(samples),
           LastSamples(model, samples, "--reproducible --microbatch_size=2"),
           {"--nproc_per_node=2", "--nproc_per_node=4", "--devices_per_rank=2",
            "--nproc_per_node=2 --pipe=2 --schedule=zb_h1",
            "--nproc_per_node=4 --pipe=2",
            "--nproc_per_node=2 --devices_per_rank=2 "
            "--schedule=gpipe"},
           Both(HasSteps(3), SameLines)});
    }
  }
  // Two and one samples, or one and none, in the last step.
  for (const int samples : {33, 35}) {
    rows.push_back(
        {"JoinedReplicasTrainOnEachSampleOnce_" + std::to_string(samples),
         LastSamples("mlp_small", samples, "--uneven_inputs=join --epochs=2"),
         {""},
         HasSteps(6),
         {"--nproc_per_node=2",
          "--nproc_per_node=2 --gradient_accumulation_steps=4",
          "--strategy=hybrid --nproc_per_node=2 --devices_per_rank=2",
          "--strategy=hybrid --nproc_per_node=4 --pipe=2 --microbatches=8"}});
  }
  rows.push_back(
      {"EveryStrategyTakesTheLastSamples",
       LastSamples("mlp_small", 37),
       {"--drop_last"},
       DropsTheLastSamples,
       {"", "--nproc_per_node=3 --batch_size=18",
        "--nproc_per_node=2 --gradient_accumulation_steps=4",
        "--devices_per_rank=2",
        "--strategy=pipeline --devices_per_rank=2 --microbatch_size=3",
        "--strategy=hybrid --nproc_per_node=2 --devices_per_rank=2",
        "--strategy=hybrid --nproc_per_node=4 --pipe=2 --microbatches=8"}});
  return rows;
}

INSTANTIATE_TEST_SUITE_P(LastSamples, TechniqueTest,
                         testing::ValuesIn(LastSampleRows()), RowName<SameRow>);

TEST(TechniqueTableTest, NoCellIsMissing) {
  EXPECT_EQ(CellsIn(DdpRows()), 23);
  EXPECT_EQ(CellsIn(HybridRows()), 7 * 2 + 3 + 3 + 3);
  EXPECT_EQ(CellsIn(DataParallelRows()), 5 * 4);
  EXPECT_EQ(CellsIn(EmaRows()), 7 + 5);
  EXPECT_EQ(CellsIn(Bf16Rows()), 2 + 3 + 1 + 2);
  EXPECT_EQ(CellsIn(TransformerRows()), 3 + 2 + 4 + 1 + 2 + 1 + 2);
  EXPECT_EQ(CellsIn(LastSampleRows()), 6 * 6 + 2 * 4 + 7);
}

}  // namespace
}  // namespace tandem::technique_test
