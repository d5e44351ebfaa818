#include "tools/trainer/settings/pipeline_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "tests/tools/trainer/settings/given_flags.h"

#define SETTING(kind, name, value, range, help) \
  ABSL_DECLARE_FLAG(tandem::setting::kind::Flag, name);
#include "tools/trainer/settings/pipeline_settings.def"

namespace tandem::pipeline_settings_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Flags beside those of a pipeline on two devices, and a part of what is said
// of them.
struct Asked {
  std::string flags;
  std::string says = "";
  int world_size = 1;
};

// The flags' values, which nobody has checked yet.
absl::Status ReadFlags(PipelineSettings& settings) {
#define SETTING(kind, name, value, range, help) \
  TANDEM_RETURN_IF_ERROR(setting::kind::Read(   \
      #name, absl::GetFlag(FLAGS_##name), &settings.name));
#include "tools/trainer/settings/pipeline_settings.def"
  return absl::OkStatus();
}

std::string Error(const Asked& asked) {
  const GivenFlags given(
      "--strategy=pipeline --devices_per_rank=2 --batch_size=32 " +
      asked.flags);
  PipelineSettings settings;
  EXPECT_EQ(ReadFlags(settings), absl::OkStatus());
  const PipelineContext around = {FlagValue("strategy"),
                                  std::stoll(FlagValue("devices_per_rank")),
                                  std::stoll(FlagValue("batch_size"))};
  absl::Status checked = Validate(settings, around);
  if (checked.ok()) {
    checked = CheckLayout(settings, around, asked.world_size);
  }
  return std::string(checked.message());
}

std::string FileOf(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(PipelineSettings, UsualOnesSuitEveryStrategy) {
  for (const char* strategy :
       {"auto", "single", "ddp", "data_parallel", "model_parallel"}) {
    EXPECT_EQ(Error({std::string("--devices_per_rank=1 --batch_size=64 "
                                 "--strategy=") +
                         strategy,
                     "", 3}),
              "")
        << strategy;
  }
  EXPECT_EQ(Error({}), "");
}

TEST(PipelineSettings, GoodOnes) {
  const std::vector<Asked> good = {
      {"--schedule=zb_v"},
      {"--schedule=interleaved_1f1b --chunks=3 --microbatches=4"},
      {"--microbatch_size=32"},
      {"--balance=profile"},
      {"--microbatches=auto"},
      {"--microbatches=auto --schedule=interleaved_1f1b --pipe=2 "
       "--strategy=hybrid",
       "", 4},
      {"--pipe=4 --strategy=auto --devices_per_rank=1 "
       "--balance=type:Linear|Block --checkpoint_activations=except_last "
       "--deferred_batch_norm --weight_gradient_batch=4",
       "", 4},
      {"--pipe=2 --strategy=hybrid", "", 4},
      {"--reproducible --microbatch_size=4 --gradient_groups=4 --strategy=ddp "
       "--devices_per_rank=1",
       "", 4},
      {"--strategy=model_parallel --balance=uniform"},
      {"--microbatches=2 --schedule=" +
       FileOf("two.txt", "F0 F1 B0 B1\nF0 B0 F1 B1\n")},
  };
  EXPECT_EQ(good.size(), 11u);
  for (const Asked& asked : good) EXPECT_EQ(Error(asked), "") << asked.flags;
}

// Before any rank starts, and before anything is predicted of it.
TEST(PipelineSettings, AScheduleFileMustEnd) {
  EXPECT_THAT(Error({"--balance=profile --schedule=" +
                     FileOf("never.txt", "B0 F0\nF0 B0\n")}),
              HasSubstr("it does not end: device 0 at B0"));
  EXPECT_THAT(Error({"--balance=profile --schedule=" +
                     FileOf("half.txt", "F0 B0\nF0\n")}),
              HasSubstr("backward 0 times"));
}

std::vector<Asked> BadAlone() {
  return {
      {"--pipe=0", "--pipe=0: must be from 1 to 1024"},
      {"--schedule=1f2b",
       "--schedule=1f2b: unknown; choose one of gpipe, 1f1b"},
      {"--chunks=-1", "--chunks=-1"},
      {"--microbatches=-1", "--microbatches=-1"},
      {"--microbatch_size=-2", "--microbatch_size=-2"},
      {"--checkpoint_activations=yes",
       "--checkpoint_activations=yes: unknown; choose one of never, "
       "except_last, "
       "always"},
      {"--reproducible", "--reproducible needs --microbatch_size"},
      {"--gradient_groups=2", "--gradient_groups=2 is for --reproducible"},
      {"--weight_gradient_batch=-1", "--weight_gradient_batch=-1"},
      {"--balance=type:[", "balance by type:[: not a regular expression"},
  };
}

std::vector<Asked> BadTogether() {
  return {
      {"--microbatches=4 --microbatch_size=8",
       "--microbatches=4 and --microbatch_size=8 say the same thing"},
      {"--microbatches=auto --microbatch_size=8",
       "--microbatches=auto and --microbatch_size=8 say the same thing"},
      {"--microbatches=auto --reproducible --microbatch_size=8",
       "--microbatches=auto goes by measured times, and another run may come "
       "to another number, which --reproducible cannot have"},
      {"--microbatches=auto --schedule=./mine.txt",
       "the microbatches of --schedule=./mine.txt are those of the file"},
      {"--microbatches=auto --strategy=hybrid --devices_per_rank=1",
       "--microbatches=auto needs several devices"},
      {"--microbatches=auto --strategy=model_parallel",
       "--microbatches=auto is for pipelines, but --strategy=model_parallel"},
      {"--microbatches=33",
       "--microbatches=33 is more than a step has samples (--batch_size=32)"},
      {"--microbatch_size=64", "--microbatch_size=64 is more"},
      {"--chunks=2", "--chunks=2: --schedule=1f1b has 1 stage(s) a device"},
      {"--schedule=zb_v --chunks=1", "--chunks=1: --schedule=zb_v has 2"},
      {"--schedule=./mine.txt --chunks=2",
       "--chunks=2 was given, but the stages of --schedule=./mine.txt"},
      {"--strategy=auto --devices_per_rank=1 --balance=uniform",
       "--balance=uniform needs several devices"},
      {"--devices_per_rank=1",
       "--strategy=pipeline needs several devices: set --devices_per_rank=N"},
      {"--pipe=2 --strategy=ddp",
       "--pipe=2 needs --strategy=pipeline or hybrid, but --strategy=ddp"},
      {"--schedule=gpipe --strategy=data_parallel",
       "--schedule=gpipe is for pipelines, but --strategy=data_parallel"},
      {"--pipe=2 --strategy=data_parallel",
       "--pipe=2 needs --strategy=pipeline or hybrid, but "
       "--strategy=data_parallel"},
      {"--reproducible --microbatch_size=4 --strategy=data_parallel",
       "--reproducible excludes --strategy=data_parallel: a microbatch"},
      {"--balance=uniform --strategy=data_parallel",
       "--balance=uniform says where to cut the model, but with "
       "--strategy=data_parallel"},
      {"--balance=fc2 --strategy=data_parallel",
       "--balance=fc2 says where to cut the model"},
      {"--schedule=gpipe --strategy=model_parallel",
       "--schedule=gpipe is for pipelines, but --strategy=model_parallel"},
      {"--deferred_batch_norm --strategy=auto",
       "--deferred_batch_norm=true is for pipelines, but --strategy=auto"},
  };
}

std::vector<Asked> BadLayouts() {
  return {
      {"--pipe=2", "--pipe=2 does not divide the number of ranks, 3", 3},
      {"--pipe=2 --tensor=3",
       "--pipe=2 --tensor=3 does not divide the number of ranks, 4", 4},
      {"--sequence_parallel=false", "give --tensor=RANKS as well", 1},
      {"--reproducible --microbatch_size=6",
       "--microbatch_size=6 does not divide the 16 samples that each of 2 "
       "replicas has of --batch_size=32",
       2},
      {"--reproducible --microbatch_size=4 --gradient_groups=3",
       "--gradient_groups=3: the number of replicas, 1, must divide it, and it "
       "the number of microbatches, 8"},
      {"--reproducible --microbatch_size=4 --gradient_groups=1",
       "--gradient_groups=1: the number of replicas, 2", 2},
      {"--schedule=interleaved_1f1b --microbatches=5",
       "--microbatches=5: --schedule=interleaved_1f1b takes a multiple of the "
       "pipeline's devices, 2"},
      {"--schedule=interleaved_1f1b --microbatch_size=7",
       "--microbatch_size=7 (5 microbatches): --schedule=interleaved_1f1b "
       "takes"},
      {"--schedule=interleaved_1f1b --batch_size=1",
       "1 microbatches (set --microbatches): --schedule=interleaved_1f1b "
       "takes"},
      {"--schedule=/no/such/file", "cannot read /no/such/file"},
      {"--schedule=" + FileOf("one.txt", "F0 B0\n"),
       "one.txt is for 1 devices (lines), but"},
      {"--microbatches=2 --schedule=" + FileOf("both.txt", "F0 B0\nF0 B0\n"),
       "--microbatches=2, but --schedule="},
      {"--batch_size=1 --schedule=" +
           FileOf("two.txt", "F0 F1 B0 B1\nF0 B0 F1 B1\n"),
       "two.txt has 2 microbatches: more than a step has samples"},
  };
}

void ExpectRefused(const std::vector<Asked>& all) {
  for (const Asked& asked : all) {
    EXPECT_THAT(Error(asked), HasSubstr(asked.says)) << asked.flags;
  }
}

TEST(PipelineSettings, BadOnesAreRefusedByName) {
  ExpectRefused(BadAlone());
  ExpectRefused(BadTogether());
  ExpectRefused(BadLayouts());
  EXPECT_EQ(BadAlone().size(), 10u);
  EXPECT_EQ(BadTogether().size(), 21u);
  EXPECT_EQ(BadLayouts().size(), 13u);
}

int64_t Microbatches(const PipelineSettings& settings, int64_t devices,
                     int64_t batch_size) {
  return *MicrobatchesFor(settings, devices, batch_size);
}

TEST(PipelineLayout, MicrobatchesAreGivenOrTwiceTheStages) {
  PipelineSettings settings;
  EXPECT_EQ(Microbatches(settings, 2, 64), 4);
  EXPECT_EQ(Microbatches(settings, 3, 64), 6);
  EXPECT_EQ(Microbatches(settings, 3, 5), 5);
  settings.schedule = "interleaved_1f1b";
  EXPECT_EQ(Microbatches(settings, 3, 64), 12);
  EXPECT_EQ(Microbatches(settings, 3, 11), 9);
  settings.microbatch_size = 8;
  EXPECT_EQ(Microbatches(settings, 2, 64), 8);
  EXPECT_EQ(Microbatches(settings, 2, 65), 9);
  settings.microbatch_size = 0;
  settings.microbatches = 7;
  EXPECT_EQ(Microbatches(settings, 2, 64), 7);
}

TEST(PipelineLayout, TheLargestMicrobatchIsOfAReplicasSamples) {
  EXPECT_EQ(LargestMicrobatch(16, 4, 0), 4);
  EXPECT_EQ(LargestMicrobatch(10, 4, 0), 3);
  EXPECT_EQ(LargestMicrobatch(10, 3, 4), 4);  // 4, 4, 2
  EXPECT_EQ(LargestMicrobatch(3, 1, 4), 3);
}

// Doubled, and shared by evenly as far as the samples can be.
TEST(PipelineLayout, AutoTriesAFewNumbers) {
  PipelineSettings settings;
  settings.microbatches.reset();
  const auto tried = [&](int64_t devices, int64_t samples) {
    return MicrobatchCandidates(settings, devices, samples);
  };
  EXPECT_THAT(tried(2, 32), ElementsAre(2, 4, 8, 16, 32));
  EXPECT_THAT(tried(2, 4096), ElementsAre(2, 4, 8, 16, 32, 64));
  EXPECT_THAT(tried(3, 64), ElementsAre(4, 8, 16, 32, 64));
  EXPECT_THAT(tried(2, 100), ElementsAre(2, 4, 10, 20, 50, 100));
  EXPECT_THAT(tried(2, 31), ElementsAre(2, 4, 8, 31));
  EXPECT_THAT(tried(4, 4), ElementsAre(4));
  EXPECT_THAT(tried(4, 3), ElementsAre(3));
  settings.schedule = "interleaved_1f1b";
  EXPECT_THAT(tried(3, 64), ElementsAre(3, 6, 12, 33));
  EXPECT_THAT(tried(3, 4), ElementsAre(3));
}

// It is as if the flag were not there: what a dry run shows.
TEST(PipelineLayout, AutoIsTheRuleUntilItIsMeasured) {
  PipelineSettings settings;
  EXPECT_FALSE(MeasuresMicrobatches(settings));
  settings.microbatches.reset();
  EXPECT_TRUE(MeasuresMicrobatches(settings));
  EXPECT_EQ(Microbatches(settings, 2, 64), 4);
}

TEST(PipelineLayout, MakesTheSchedule) {
  PipelineSettings settings;
  settings.schedule = "looped_bfs";
  settings.chunks = 3;
  settings.microbatches = 5;
  const auto schedule = ScheduleFor(settings, 2, 64);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(schedule->stages, 6);
  EXPECT_EQ(schedule->devices(), 2);
  EXPECT_EQ(schedule->microbatches, 5);
}

TEST(PipelineSettings, WithoutBalanceParametersAreCounted) {
  PipelineSettings settings;
  EXPECT_EQ(BalanceFor(settings), "parameters");
  settings.balance = "profile";
  EXPECT_EQ(BalanceFor(settings), "profile");
}

}  // namespace
}  // namespace tandem::pipeline_settings_test
