// A job that was stopped goes on with the bits of one that was not: anywhere,
// from any layout's checkpoint.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::resume_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using Rows = std::vector<ResumeRow>;

class ResumeTest : public testing::TestWithParam<ResumeRow> {};

TEST_P(ResumeTest, EndsWithTheSameBits) { ExpectGoesOn(GetParam()); }

// Six steps an epoch: step 4 is in the middle of one, step 6 at its end.
Rows TechniqueRows() {
  const std::vector<std::pair<std::string, std::string>> jobs = {
      {"Sgd", ""},
      {"SgdScheduled",
       "--nesterov --weight_decay=0.01 --lr_schedule=cosine "
       "--lr_warmup_steps=5"},
      {"AdamW", "--optimizer=adamw --weight_decay=0.1 --amsgrad"},
      // Stable up to step 6, of 18.
      {"WarmupStableDecay",
       "--lr_schedule=wsd --lr_wsd_decay_steps=13 --lr_wsd_decay_style=sqrt "
       "--lr_warmup_steps=3 --label_smoothing=0.1"},
      {"Adam", "--optimizer=adam --clip_grad_norm=0.5"},
      {"Muon", "--optimizer=muon --muon_learning_rate=0.02"},
      {"Averages", "--optimizer=adam --ema_decay=0.75"},
      {"BatchNormBuffers",
       "--model=resnet18 --synthetic_shape=3,32,32 "
       "--synthetic_samples=24 --batch_size=4"},
      {"Dropout", "--model=mlp_dropout --nproc_per_node=2"},
      {"TiedWeights",
       "--model=gpt_tiny_tied --dataset=synthetic_tokens "
       "--synthetic_shape=8 --synthetic_samples=24 "
       "--batch_size=4 --optimizer=adamw"},
      {"TwoRanks", "--nproc_per_node=2"},
      {"ThreeRanks",
       "--nproc_per_node=3 --batch_size=15 "
       "--synthetic_samples=94 --optimizer=adam"}};
  Rows rows;
  for (const auto& [name, flags] : jobs) {
    rows.push_back({name,
                    Small("--epochs=3 " + flags),
                    {""},
                    "--save_every=2",
                    {4, 6},
                    {""}});
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Technique, ResumeTest,
                         testing::ValuesIn(TechniqueRows()),
                         RowName<ResumeRow>);

// Two epochs of four steps: step 3 is in the middle of one.
Rows MeshRows() {
  const std::vector<std::pair<std::string, std::string>> meshes = {
      {"OneDevice", ""},
      {"Data2", "--nproc_per_node=2 --shard=off"},
      {"Data3Sharded", "--nproc_per_node=3 --shard=optimizer"},
      {"Pipe2", "--nproc_per_node=2 --pipe=2"},
      {"Data2Pipe2Sharded",
       "--nproc_per_node=4 --pipe=2 "
       "--shard=optimizer"}};
  Rows rows;
  for (const auto& [name, saving] : meshes) {
    ResumeRow row = {name,
                     Tiny("mlp_dropout",
                          "--reproducible --batch_size=12 --microbatch_size=2 "
                          "--synthetic_samples=48 --epochs=2 "
                          "--optimizer=adamw"),
                     {saving},
                     "--max_steps=3",
                     {},
                     {}};
    row.first_step = 4;
    for (const auto& mesh : meshes) row.to.push_back(mesh.second);
    rows.push_back(row);
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Mesh, ResumeTest, testing::ValuesIn(MeshRows()),
                         RowName<ResumeRow>);

// The same, from a place to another.
Rows PlaceRows() {
  const auto on = [](const char* place) {
    return Typed(PlaceNamed(place).flags) + " --microbatches=1";
  };
  const std::string ranks = on("2 ranks"), devices = on("2 devices");
  const std::string both = on("2 ranks with 2 devices each");
  Rows rows;
  for (const std::string model : {"mlp_dropout", "gpt_tiny_tied", "resnet18"}) {
    for (const std::string optimizer : {"sgd", "adamw"}) {
      const std::string suffix = "_" + model + "_" + optimizer;
      const Flags job = Tiny(model, "--epochs=2 --optimizer=" + optimizer);
      const std::string saving = "--save_every=3";
      rows.push_back(
          {"FromRanks" + suffix, job, {ranks}, saving, {3}, {"", devices}});
      rows.push_back(
          {"FromOneDevice" + suffix, job, {""}, saving, {3}, {ranks}});
      rows.push_back(
          {"FromDevices" + suffix, job, {devices}, saving, {3}, {both}});
    }
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Place, ResumeTest, testing::ValuesIn(PlaceRows()),
                         RowName<ResumeRow>);

Flags LastSamples(const std::string& model, int samples,
                  const std::string& more) {
  return Joined(Tiny(model,
                     "--nodrop_last --batch_size=16 "
                     "--synthetic_samples=" +
                         std::to_string(samples)),
                Words(more));
}

Rows LastSampleRows() {
  // Ranks share the rest of an epoch as they share an epoch, over several.
  ResumeRow shared = {
      "LastStepInOtherLayouts",
      LastSamples("mlp_dropout", 45,
                  "--reproducible --microbatch_size=2 "
                  "--epochs=2"),
      {"--nproc_per_node=4"},
      "--save_every=1",
      {2, 3, 5},
      {"--nproc_per_node=2", "--nproc_per_node=4", "--devices_per_rank=2",
       "--nproc_per_node=2 --pipe=2 --schedule=zb_h1",
       "--nproc_per_node=4 --pipe=2",
       "--nproc_per_node=2 --devices_per_rank=2 "
       "--schedule=gpipe"}};
  shared.saver_is_straight = true;
  shared.length = 6;
  Rows rows = {shared};
  // Fewer samples than ranks, in the whole set or in what a resumed epoch has
  // left: some replicas have none at all.
  for (const int samples : {1, 3, 7, 65}) {
    for (const std::string layout :
         {"--nproc_per_node=2", "--nproc_per_node=4",
          "--strategy=hybrid --nproc_per_node=2 --devices_per_rank=2",
          "--strategy=hybrid --nproc_per_node=4 --pipe=2"}) {
      const int steps = (samples + 15) / 16;
      ResumeRow row = {"JoinedReplicasMayHaveNoSamples_" +
                           std::to_string(samples) + "_" +
                           std::to_string(rows.size()),
                       LastSamples("mlp_small", samples,
                                   layout + " --uneven_inputs=join --epochs=2 "
                                            "--timeout=60"),
                       {""},
                       "--save_every=1",
                       {},
                       {""}};
      // Before the last step of the first epoch.
      if (steps > 1) row.steps = {steps - 1};
      row.saver_is_straight = true;
      row.length = 2 * steps;
      rows.push_back(row);
    }
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(LastSamples, ResumeTest,
                         testing::ValuesIn(LastSampleRows()),
                         RowName<ResumeRow>);

TEST(ResumeTableTest, NoCellIsMissing) {
  EXPECT_EQ(CellsIn(TechniqueRows()), 12 * 2);
  EXPECT_EQ(CellsIn(MeshRows()), 5 * 5);
  EXPECT_EQ(CellsIn(PlaceRows()), 6 * 4);
  EXPECT_EQ(CellsIn(LastSampleRows()), 3 * 6 + 16);
}

// Weights and checkpoints are those of a job without --shard, and any
// number of replicas goes on. Eight steps of 16 samples.
TEST(ShardedOptimizerTest, ACheckpointOfSharesGoesOnAnywhere) {
  const Flags job = Tiny("gpt_tiny_tied",
                         "--reproducible --batch_size=16 --microbatch_size=2 "
                         "--synthetic_samples=64 --epochs=2 --optimizer=adamw");
  const std::string straight = Fingerprint(RunJobForEvents(job));
  std::vector<std::string> saved, weights;
  for (const std::string sharding : {"optimizer", "off"}) {
    const std::string folder = NewFolder("shared_" + sharding);
    const Events events = RunJobForEvents(
        Joined(job,
               Words("--nproc_per_node=4 --pipe=2 --save_every=3 "
                     "--shard=" +
                     sharding),
               {"--save_dir=" + folder}));
    EXPECT_EQ(Fingerprint(events), straight);
    saved.push_back(SavedStep(folder, 3));
    const std::string shown = RunProgram(kInspect, {saved.back()}).out;
    EXPECT_THAT(shown, HasSubstr("checksums hold"));
    weights.push_back(shown.substr(shown.find("weights_sha256")));
  }
  EXPECT_EQ(weights[0], weights[1]);
  // Each of the four ranks has written its own.
  EXPECT_TRUE(std::filesystem::exists(saved[0] + "/rank-00003.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(saved[1] + "/rank-00003.safetensors"));
  for (const char* layout :
       {"", "--nproc_per_node=2 --shard=optimizer",
        "--nproc_per_node=2 --shard=off",
        "--nproc_per_node=2 --devices_per_rank=2 --shard=optimizer",
        "--nproc_per_node=4 --shard=optimizer"}) {
    const Events events =
        RunJobForEvents(Joined(job, Words(layout), {"--resume=" + saved[0]}));
    EXPECT_EQ(EventsOf(events, "step").front()["step"], 4);
    EXPECT_EQ(Fingerprint(events), straight);
  }
}

nlohmann::json EvaluatedLoss(const Events& events) {
  return EventsOf(events, "eval").back()["loss"];
}

// Averages are what is evaluated at the end, of this job and of any that goes
// on from its checkpoint.
TEST(AveragesTest, GoOnAnywhereAndAreWhatIsEvaluated) {
  const Flags plain =
      Tiny("mlp_dropout",
           "--reproducible --batch_size=12 --microbatch_size=2 "
           "--synthetic_samples=48 --epochs=2 --optimizer=adamw");
  const Flags job = Joined(plain, {"--ema_decay=0.75"});
  const std::string folder = NewFolder("averages");
  const Events straight =
      RunJobForEvents(Joined(job, {"--save_dir=" + folder}));
  const Events without = RunJobForEvents(plain);
  EXPECT_EQ(Fingerprint(straight), Fingerprint(without));
  EXPECT_NE(EvaluatedLoss(straight), EvaluatedLoss(without));

  const std::string parts = NewFolder("averages_of_parts");
  RunJobForEvents(Joined(job,
                         Words("--nproc_per_node=4 --pipe=2 --max_steps=3 "
                               "--shard=optimizer"),
                         {"--save_dir=" + parts}));
  const Events resumed = RunJobForEvents(Joined(job, {"--resume=" + parts}));
  EXPECT_EQ(Fingerprint(resumed), Fingerprint(straight));
  EXPECT_EQ(EvaluatedLoss(resumed), EvaluatedLoss(straight));

  const Events scored =
      RunJobForEvents(Joined(plain, {"--eval_only", "--resume=" + folder}));
  EXPECT_EQ(EvaluatedLoss(scored), EvaluatedLoss(straight));
  EXPECT_NE(Fingerprint(scored), Fingerprint(straight));
  EXPECT_THAT(RunProgram(kInspect, {folder}).out,
              HasSubstr(Fingerprint(straight)));
}

TEST(ChannelsLastTest, CheckpointsServeBothFormats) {
  const std::string folder = NewFolder("formats");
  const Flags job = Small("--model=cnn --max_steps=4");
  const Flags last = {"--channels_last"};
  const Flags two_steps = {"--max_steps=2"};
  const Events saved = RunJobForEvents(
      Joined(Joined(job, last, {"--save_dir=" + folder}), two_steps));
  const Flags resumed = Joined(job, {"--resume=" + folder});
  for (const Flags& format : {Flags{}, last}) {
    // Nothing is left to train.
    const Events events = RunJobForEvents(Joined(resumed, two_steps, format));
    EXPECT_EQ(Fingerprint(events), Fingerprint(saved));
  }
  const double on = LastLoss(RunJobForEvents(Joined(resumed, last)));
  EXPECT_NEAR(LastLoss(RunJobForEvents(resumed)), on, 1e-4 * on);
}

// The same bits each time, and when it has stopped in between; and a
// checkpoint of one layout goes on in the other.
TEST(DataParallelTest, GoesOnFromACheckpointOfEither) {
  const Flags job = Small("--epochs=2 --device=sim");
  const Flags layout = Words("--strategy=data_parallel --devices_per_rank=2");
  const Events straight = RunJobForEvents(Joined(job, layout));
  EXPECT_EQ(Fingerprint(RunJobForEvents(Joined(job, layout))),
            Fingerprint(straight));
  const std::string folder = NewFolder("data_parallel");
  RunJobForEvents(
      Joined(job, layout, {"--save_dir=" + folder, "--save_every=4"}));
  const Flags resumed = Joined(job, {"--resume=" + SavedStep(folder, 4)});
  const Events again = RunJobForEvents(Joined(resumed, layout));
  EXPECT_EQ(Fingerprint(again), Fingerprint(straight));
  ExpectSameLosses(EventsOf(RunJobForEvents(resumed), "step"),
                   EventsOf(again, "step"), 1e-4, "one device");
}

// Master weights and the optimizer's state: a checkpoint does not tell what
// products were computed in.
TEST(MixedPrecisionTest, ACheckpointHoldsFp32AndResumesInEitherPrecision) {
  const std::string folder = NewFolder("bf16");
  const Flags job = Small("--optimizer=adamw --dtype=bf16 --max_steps=6");
  RunJobForEvents(Joined(job, {"--save_dir=" + folder, "--max_steps=3"}));
  const std::string checkpoint = SavedStep(folder, 3);
  const ProgramResult shown = RunProgram(kInspect, {checkpoint});
  EXPECT_THAT(shown.out, HasSubstr("F32"));
  EXPECT_THAT(shown.out, Not(HasSubstr("BF16")));

  const std::string whole = Fingerprint(RunJobForEvents(job));
  const Flags rest = Joined(job, {"--resume=" + checkpoint});
  EXPECT_EQ(Fingerprint(RunJobForEvents(rest)), whole);
  // By the name that transformers has for it.
  EXPECT_EQ(Fingerprint(RunJobForEvents(Joined(rest, {"--dtype=bfloat16"}))),
            whole);
  EXPECT_NE(Fingerprint(RunJobForEvents(Joined(rest, {"--dtype=fp32"}))),
            whole);
}

// The checkpoint of step 3 goes on with the vocabulary in parts, or not.
TEST(VocabularyInPartsTest, ACheckpointKnowsTheWholeWeight) {
  const Flags job = Joined(
      Words("--model=gpt_tiny_tied --dataset=synthetic_tokens --context=8 "
            "--synthetic_samples=32 --batch_size=8 --optimizer=adamw "
            "--reproducible --microbatch_size=4 --epochs=1 --save_dir= "
            "--log_every=1"),
      TestBackendFlags());
  const std::vector<double> plain = StepLosses(RunJobForEvents(job));
  for (const std::string from :
       {"--vocab_parallel=2 --nproc_per_node=2 --pipe=2 --schedule=zb_h1",
        "--vocab_parallel=2 --nproc_per_node=2 --shard=optimizer",
        "--vocab_parallel=3", ""}) {
    const std::string folder = NewFolder("parts");
    const Events saved = RunJobForEvents(
        Joined(job, Words(from + " --save_every=3 --max_steps=3"),
               {"--save_dir=" + folder}));
    const Flags resumed = Joined(job, {"--resume=" + SavedStep(folder, 3)});
    for (const std::string parts :
         {"--vocab_parallel=1", "--vocab_parallel=2", "--vocab_parallel=5"}) {
      SCOPED_TRACE(from + " to " + parts);
      const Events same =
          RunJobForEvents(Joined(resumed, {"--eval_only", parts}));
      EXPECT_EQ(Fingerprint(same), Fingerprint(saved));
      if (parts == "--vocab_parallel=5") continue;
      const std::vector<double> on =
          StepLosses(RunJobForEvents(Joined(resumed, {parts})));
      ASSERT_EQ(on.size(), 1u);
      EXPECT_NEAR(on[0], plain[3], 1e-4);
    }
  }
}

}  // namespace
}  // namespace tandem::resume_test
