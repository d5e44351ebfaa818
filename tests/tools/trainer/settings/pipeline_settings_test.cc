#include "tools/trainer/settings/pipeline_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <string>

namespace tandem::pipeline_settings_test {
namespace {

using testing::HasSubstr;

struct Asked {
  PipelineSettings settings;
  PipelineSurroundings around = {"pipeline", 2, 32, ""};
  int world_size = 1;
};

std::string ErrorOf(const Asked& asked) {
  absl::Status checked = Validate(asked.settings, asked.around);
  if (checked.ok()) {
    checked = CheckLayout(asked.settings, asked.around, asked.world_size);
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
    EXPECT_EQ(ErrorOf({{}, {strategy, 1, 64, ""}, 3}), "") << strategy;
  }
  EXPECT_EQ(ErrorOf({}), "");
}

TEST(PipelineSettings, GoodOnes) {
  const auto good = [](const std::function<void(Asked&)>& change) {
    Asked asked;
    change(asked);
    EXPECT_EQ(ErrorOf(asked), "");
  };
  good([](Asked& a) { a.settings.schedule = "zb_v"; });
  good([](Asked& a) {
    a.settings.schedule = "interleaved_1f1b";
    a.settings.chunks = 3;
    a.settings.microbatches = 4;
  });
  good([](Asked& a) { a.settings.microbatch_size = 32; });
  good([](Asked& a) { a.settings.balance = "profile"; });
  good([](Asked& a) {
    a.settings.pipe = 4;
    a.around.strategy = "auto";
    a.around.devices_per_rank = 1;
    a.settings.balance = "type:Linear|Block";
    a.settings.checkpoint_activations = "except_last";
    a.settings.deferred_batch_norm = true;
    a.settings.weight_gradient_batch = 4;
    a.world_size = 4;
  });
  good([](Asked& a) {
    a.settings.pipe = 2;
    a.around.strategy = "hybrid";
    a.world_size = 4;
  });
  good([](Asked& a) {  // every corner may be reproducible
    a.settings.reproducible = true;
    a.settings.microbatch_size = 4;
    a.settings.gradient_groups = 4;
    a.around.strategy = "ddp";
    a.around.devices_per_rank = 1;
    a.world_size = 4;
  });
  good([](Asked& a) {  // plain model parallelism may be balanced, too
    a.around.strategy = "model_parallel";
    a.settings.balance = "uniform";
  });
  good([](Asked& a) {
    a.settings.schedule = FileOf("two.txt", "F0 F1 B0 B1\nF0 B0 F1 B1\n");
    a.settings.microbatches = 2;
  });
}

// Before any rank starts, and before anything is predicted of it.
TEST(PipelineSettings, AScheduleFileMustEnd) {
  Asked asked;
  asked.settings.balance = "profile";
  asked.settings.schedule = FileOf("never.txt", "B0 F0\nF0 B0\n");
  EXPECT_THAT(ErrorOf(asked), HasSubstr("it does not end: device 0 at B0"));
  asked.settings.schedule = FileOf("half.txt", "F0 B0\nF0\n");
  EXPECT_THAT(ErrorOf(asked), HasSubstr("backward 0 times"));
}

struct Bad {
  std::function<void(Asked&)> spoil;
  const char* message;
};

class BadPipelineTest : public testing::TestWithParam<Bad> {};

TEST_P(BadPipelineTest, IsRefusedByName) {
  Asked asked;
  GetParam().spoil(asked);
  EXPECT_THAT(ErrorOf(asked), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Alone, BadPipelineTest,
    testing::Values(
        Bad{[](Asked& a) { a.settings.pipe = 0; },
            "--pipe=0: must be from 1 to 1024"},
        Bad{[](Asked& a) { a.settings.schedule = "1f2b"; },
            "--schedule=1f2b: unknown; known: gpipe, 1f1b"},
        Bad{[](Asked& a) { a.settings.chunks = -1; }, "--chunks=-1"},
        Bad{[](Asked& a) { a.settings.microbatches = -1; },
            "--microbatches=-1"},
        Bad{[](Asked& a) { a.settings.microbatch_size = -2; },
            "--microbatch_size=-2"},
        Bad{[](Asked& a) { a.settings.checkpoint_activations = "yes"; },
            "--checkpoint_activations=yes: unknown; known: never, except_last, "
            "always"},
        Bad{[](Asked& a) { a.settings.reproducible = true; },
            "--reproducible needs --microbatch_size"},
        Bad{[](Asked& a) { a.settings.gradient_groups = 2; },
            "--gradient_groups=2 is for --reproducible"},
        Bad{[](Asked& a) { a.settings.weight_gradient_batch = -1; },
            "--weight_gradient_batch=-1"},
        Bad{[](Asked& a) { a.settings.balance = "type:["; },
            "balance by type:[: not a regular expression"}));

INSTANTIATE_TEST_SUITE_P(
    Together, BadPipelineTest,
    testing::Values(
        Bad{[](Asked& a) {
              a.settings.microbatches = 4;
              a.settings.microbatch_size = 8;
            },
            "--microbatches=4 and --microbatch_size=8 say the same thing"},
        Bad{[](Asked& a) { a.settings.microbatches = 33; },
            "--microbatches=33 is more than a step has samples "
            "(--batch_size=32)"},
        Bad{[](Asked& a) { a.settings.microbatch_size = 64; },
            "--microbatch_size=64 is more"},
        Bad{[](Asked& a) { a.settings.chunks = 2; },
            "--chunks=2: --schedule=1f1b has 1 stage(s) a device"},
        Bad{[](Asked& a) {
              a.settings.schedule = "zb_v";
              a.settings.chunks = 1;
            },
            "--chunks=1: --schedule=zb_v has 2"},
        Bad{[](Asked& a) {
              a.settings.schedule = "./mine.txt";
              a.settings.chunks = 2;
            },
            "--chunks=2 was given, but the stages of --schedule=./mine.txt"},
        Bad{[](Asked& a) {
              a.settings.balance = "uniform";
              a.around.cut = "fc2";
            },
            "--cut=fc2 is another name of --balance=fc2, and "
            "--balance=uniform was given"},
        Bad{[](Asked& a) {
              a.around = {"auto", 1, 32, ""};
              a.settings.balance = "uniform";
            },
            "--balance=uniform needs several devices"},
        Bad{[](Asked& a) { a.around.devices_per_rank = 1; },
            "--strategy=pipeline needs several devices: set "
            "--devices_per_rank=N"},
        Bad{[](Asked& a) {
              a.settings.pipe = 2;
              a.around.strategy = "ddp";
            },
            "--pipe=2 needs --strategy=pipeline or hybrid, but --strategy=ddp"},
        Bad{[](Asked& a) {
              a.settings.schedule = "gpipe";
              a.around.strategy = "data_parallel";
            },
            "--schedule=gpipe is for pipelines, but "
            "--strategy=data_parallel"},
        Bad{[](Asked& a) {
              a.settings.pipe = 2;
              a.around.strategy = "data_parallel";
            },
            "--pipe=2 needs --strategy=pipeline or hybrid, but "
            "--strategy=data_parallel"},
        Bad{[](Asked& a) {
              a.settings.reproducible = true;
              a.settings.microbatch_size = 4;
              a.around.strategy = "data_parallel";
            },
            "--reproducible excludes --strategy=data_parallel: a microbatch"},
        Bad{[](Asked& a) {
              a.settings.balance = "uniform";
              a.around.strategy = "data_parallel";
            },
            "--balance=uniform says where to cut the model, but with "
            "--strategy=data_parallel"},
        Bad{[](Asked& a) {
              a.around.cut = "fc2";
              a.around.strategy = "data_parallel";
            },
            "--cut=fc2 says where to cut the model"},
        Bad{[](Asked& a) {
              a.settings.schedule = "gpipe";
              a.around.strategy = "model_parallel";
            },
            "--schedule=gpipe is for pipelines, but "
            "--strategy=model_parallel"},
        Bad{[](Asked& a) {
              a.settings.deferred_batch_norm = true;
              a.around.strategy = "auto";
            },
            "--deferred_batch_norm=true is for pipelines, but "
            "--strategy=auto"}));

INSTANTIATE_TEST_SUITE_P(
    Layout, BadPipelineTest,
    testing::Values(
        Bad{[](Asked& a) {
              a.settings.pipe = 2;
              a.world_size = 3;
            },
            "--pipe=2 does not divide the number of ranks, 3"},
        Bad{[](Asked& a) {
              a.settings.reproducible = true;
              a.settings.microbatch_size = 6;
              a.world_size = 2;
            },
            "--microbatch_size=6 does not divide the 16 samples that each of 2 "
            "replicas has of --batch_size=32"},
        Bad{[](Asked& a) {
              a.settings.reproducible = true;
              a.settings.microbatch_size = 4;
              a.settings.gradient_groups = 3;
            },
            "--gradient_groups=3: the number of replicas, 1, must divide it, "
            "and it the number of microbatches, 8"},
        Bad{[](Asked& a) {
              a.settings.reproducible = true;
              a.settings.microbatch_size = 4;
              a.settings.gradient_groups = 1;
              a.world_size = 2;
            },
            "--gradient_groups=1: the number of replicas, 2"},
        Bad{[](Asked& a) {
              a.settings.schedule = "interleaved_1f1b";
              a.settings.microbatches = 5;
            },
            "--microbatches=5: --schedule=interleaved_1f1b takes a multiple of "
            "the pipeline's devices, 2"},
        Bad{[](Asked& a) {
              a.settings.schedule = "interleaved_1f1b";
              a.settings.microbatch_size = 7;
            },
            "--microbatch_size=7 (5 microbatches): "
            "--schedule=interleaved_1f1b takes"},
        Bad{[](Asked& a) {
              a.settings.schedule = "interleaved_1f1b";
              a.around.batch_size = 1;
            },
            "1 microbatches (set --microbatches): "
            "--schedule=interleaved_1f1b takes"},
        Bad{[](Asked& a) { a.settings.schedule = "/no/such/file"; },
            "cannot read /no/such/file"},
        Bad{[](Asked& a) {
              a.settings.schedule = FileOf("one.txt", "F0 B0\n");
            },
            "one.txt is for 1 devices (lines), but"},
        Bad{[](Asked& a) {
              a.settings.schedule = FileOf("both.txt", "F0 B0\nF0 B0\n");
              a.settings.microbatches = 2;
            },
            "--microbatches=2, but --schedule="},
        Bad{[](Asked& a) {
              a.settings.schedule =
                  FileOf("two.txt", "F0 F1 B0 B1\nF0 B0 F1 B1\n");
              a.around.batch_size = 1;
            },
            "two.txt has 2 microbatches: more than a step has samples"}));

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

TEST(PipelineSettings, CutIsAnotherNameOfBalance) {
  PipelineSettings settings;
  EXPECT_EQ(BalanceFor(settings, ""), "parameters");
  EXPECT_EQ(BalanceFor(settings, "fc2"), "fc2");
  settings.balance = "profile";
  EXPECT_EQ(BalanceFor(settings, ""), "profile");
}

}  // namespace
}  // namespace tandem::pipeline_settings_test
