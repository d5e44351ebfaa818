// --dry_run: what it says is what the job then does, it refuses what the job
// refuses, and leaves nothing behind.

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/program.h"
#include "tests/e2e/train/runs.h"

namespace tandem::dry_run_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string NewFolder(const std::string& name) {
  const std::string folder = testing::TempDir() + "/" + name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

ProgramResult DryRun(const Flags& flags) {
  return RunProgram(kTrain, Joined(flags, {"--dry_run"}));
}

std::string Planned(const Flags& flags) {
  const ProgramResult result = DryRun(flags);
  EXPECT_EQ(result.exit_code, 0) << Typed(flags) << "\n" << result.err;
  return result.out;
}

int64_t NumberBefore(const std::string& unit, const std::string& text) {
  std::smatch found;
  if (!std::regex_search(text, found, std::regex("([0-9,]+) " + unit))) {
    ADD_FAILURE() << "no number of " << unit << " in " << text;
    return -1;
  }
  return std::stoll(std::regex_replace(found[1].str(), std::regex(","), ""));
}

// "1.5 MiB" behind what matches.
double BytesBehind(const std::string& pattern, const std::string& text) {
  std::smatch found;
  if (!std::regex_search(text, found,
                         std::regex(pattern + "([0-9.]+) (B|KiB|MiB|GiB)"))) {
    ADD_FAILURE() << pattern << " is not in " << text;
    return -1;
  }
  const std::string unit = found[2];
  const double factor = unit == "B"     ? 1
                        : unit == "KiB" ? 1 << 10
                        : unit == "MiB" ? 1 << 20
                                        : 1 << 30;
  return std::stod(found[1]) * factor;
}

int64_t BytesIn(const std::string& folder) {
  int64_t bytes = 0;
  for (const auto& each : fs::recursive_directory_iterator(folder)) {
    if (each.is_regular_file()) {
      bytes += static_cast<int64_t>(each.file_size());
    }
  }
  return bytes;
}

TEST(DryRunTest, SaysWhatTheJobComesTo) {
  const std::string folder = NewFolder("comes_to");
  const Flags job =
      Tiny("mlp_small",
           "--strategy=hybrid --nproc_per_node=4 --pipe=2 "
           "--optimizer=adam --save_every=3 --keep_last=1 --epochs=2");
  const std::string plan =
      Planned(Joined(job, {"--save_dir=" + folder + "/c"}));
  EXPECT_FALSE(fs::exists(folder + "/c"));
  EXPECT_THAT(plan, AllOf(HasSubstr("hybrid: "), HasSubstr("4 ranks"),
                          HasSubstr("memory of a replica's devices"),
                          HasSubstr("\n       0  "), HasSubstr("\n       1  "),
                          Not(HasSubstr("\n       2  "))));
  ProgramResult run;
  const Events events =
      RunJobForEvents(Joined(job, {"--save_dir=" + folder + "/c"}), &run);
  EXPECT_EQ(NumberBefore("steps: 2 epochs", plan), 2 * kTinySteps);
  EXPECT_EQ(StepsOf(events).back(), 2 * kTinySteps);
  // Steps 3, 4, 6 and 8; one is kept, and one more while it is replaced.
  EXPECT_THAT(plan, HasSubstr("4 checkpoints of "));
  EXPECT_THAT(plan, HasSubstr(", 2 at once at most"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder + "/c"),
                          fs::directory_iterator()),
            1);
}

TEST(DryRunTest, ACheckpointIsAsLargeAsItSays) {
  for (const std::string more :
       {"", "--momentum=0", "--optimizer=adamw", "--optimizer=adam --amsgrad",
        "--ema_decay=0.9", "--optimizer=muon",
        "--nproc_per_node=2 --shard=optimizer --optimizer=adamw",
        "--nproc_per_node=2 --shard=parameters --optimizer=adamw"}) {
    for (const std::string model : {"gpt_tiny_tied", "resnet18"}) {
      // Which has no matrices but its head.
      if (more == "--optimizer=muon" && model == "resnet18") continue;
      const std::string folder = NewFolder("size");
      const Flags job =
          Tiny(model, more + " --max_steps=1 --save_dir=" + folder);
      const double said = BytesBehind("1 checkpoint of ", Planned(job));
      ASSERT_EQ(RunProgram(kTrain, job).exit_code, 0);
      // Beside tensors it has names and a manifest.
      const auto made = static_cast<double>(BytesIn(folder));
      EXPECT_GE(made, said * 0.999) << model << " " << more;
      EXPECT_LE(made, said * 1.01 + 65536) << model << " " << more;
    }
  }
}

TEST(DryRunTest, SaysWhichOptimizerHasWhat) {
  EXPECT_THAT(Planned(Tiny("mlp_small", "--optimizer=muon")),
              HasSubstr("\n  optimizers    muon 7 of 16 parameters, adamw the "
                        "rest\n"));
}

TEST(DryRunTest, SaysWhatIsMeasuredLater) {
  const std::string plan =
      Planned(Tiny("mlp_small",
                   "--strategy=pipeline --devices_per_rank=2 "
                   "--microbatches=auto --balance=profile"));
  EXPECT_THAT(plan, AllOf(HasSubstr(", in 4 microbatches of at most 2\n"),
                          HasSubstr("\n  --balance=profile measures when"),
                          HasSubstr("\n  --microbatches=auto measures when")));
}

TEST(DryRunTest, AGptsMemoryIsWhatItsDevicesHold) {
  const Flags job = {"--model=gpt_baby",     "--dataset=synthetic_tokens",
                     "--synthetic_shape=64", "--synthetic_samples=16",
                     "--batch_size=8",       "--max_steps=2",
                     "--optimizer=adamw",    "--device=sim",
                     "--save_dir=",          "--strategy=pipeline",
                     "--devices_per_rank=2", "--microbatches=4"};
  const std::string plan = Planned(job);
  ProgramResult run;
  RunJobForEvents(job, &run);
  // "sim:0  12 MiB: parameters 8 MiB, gradients ..."
  for (const char* category : {"gradients", "optimizer"}) {
    EXPECT_THAT(run.out, HasSubstr(category));
  }
  for (int device = 0; device < 2; ++device) {
    const std::string number = std::to_string(device);
    const double said = BytesBehind("\n +" + number + "  .*  ", plan);
    const double was =
        BytesBehind("peak on sim:" + number + "[^0-9]+", run.out);
    EXPECT_GE(was, said * 0.95) << plan << run.out;
    EXPECT_LE(was, said * 1.5) << plan << run.out;
  }
}

TEST(DryRunTest, LeavesNothingBehind) {
  const std::string folder = NewFolder("untouched");
  std::ofstream(folder + "/metrics") << "{\"event\": \"another job's\"}\n";
  const Flags job =
      Small("--nproc_per_node=2 --save_dir=" + folder +
            "/saved --metrics_file=" + folder + "/metrics --log_dir=" + folder +
            "/logs --trace_file=" + folder + "/trace.json");
  Planned(job);
  std::vector<std::string> names;
  for (const auto& each : fs::recursive_directory_iterator(folder)) {
    names.push_back(each.path().filename());
  }
  EXPECT_THAT(names, testing::ElementsAre("metrics"));
  EXPECT_EQ(fs::file_size(folder + "/metrics"), 27u);
}

TEST(DryRunTest, RefusesWhatTheJobRefuses) {
  const std::string folder = NewFolder("refused");
  std::ofstream(folder + "/file") << "";
  const std::string text = NewText("refused_text");
  const struct {
    std::string flags, says;
  } rows[] = {
      {"--batch_size=7 --nproc_per_node=2", "--batch_size=7"},
      {"--batch_size=100", "--batch_size=100: the training set has only 96"},
      {"--nproc_per_node=2 --pipe=2 --devices_per_rank=3 --strategy=pipeline "
       "--microbatches=2 --schedule=interleaved_1f1b",
       "--microbatches=2"},
      {"--dataset=mnist --data_dir=/no/such/folder --synthetic_shape= "
       "--synthetic_samples=0",
       "/no/such/folder"},
      {"--dataset=tokens --data_dir=" + text, "--dataset=synthetic"},
      {"--save_dir=" + folder + "/file", "--save_dir=" + folder + "/file"},
      {"--resume=/no/such/checkpoint", "--resume=/no/such/checkpoint: there"},
      {"--init_from=/no/such/weights", "/no/such/weights"},
      {"--metrics_file=/no/such/folder/metrics", "/no/such/folder"},
      {"--no_weight_decay_on=qqq --weight_decay=0.1", "matches no parameter"},
      {"--balance=fc9 --devices_per_rank=2", "fc9"},
      {"--device=cuda", "--device=cuda"},
      {"--weight_decay=-1", "--weight_decay=-1"},
  };
  for (const auto& row : rows) {
    const Flags job = Small(row.flags);
    const ProgramResult dry = DryRun(job);
    EXPECT_EQ(dry.exit_code, 2) << row.flags << dry.out << dry.err;
    EXPECT_THAT(dry.err, HasSubstr(row.says)) << row.flags;
    EXPECT_EQ(dry.out, "");
    EXPECT_EQ(RunProgram(kTrain, job).exit_code, 2) << row.flags;
  }
}

TEST(DryRunTest, SaysWhereTheJobGoesOn) {
  const std::string folder = NewFolder("goes_on");
  const Flags job = Tiny("gpt_tiny_tied", "--epochs=2 --save_dir=" + folder);
  ASSERT_EQ(RunProgram(kTrain, Joined(job, {"--max_steps=3"})).exit_code, 0);
  EXPECT_THAT(DryRun(job).err, HasSubstr("has checkpoints of another job"));
  const std::string plan = Planned(Joined(job, {"--resume=auto"}));
  EXPECT_THAT(plan, AllOf(HasSubstr("step 3\n"), HasSubstr("; 5 are left")));
  const Flags other =
      Tiny("mlp_small", "--resume=" + SavedStep(folder, 3) + " --save_dir=");
  EXPECT_EQ(DryRun(other).exit_code, 2);
  EXPECT_THAT(DryRun(other).err, HasSubstr("--model"));
  const Flags begun =
      Tiny("gpt_tiny_tied", "--save_dir= --init_from=" + SavedStep(folder, 3));
  EXPECT_THAT(Planned(begun), HasSubstr("initial weights from "));
}

TEST(DryRunTest, MemoryThatIsNotThereIsRefused) {
  const std::string job =
      "--model=gpt2 --dataset=synthetic_tokens --device=sim --save_dir= "
      "--batch_size=1 --device_memory=";
  EXPECT_EQ(DryRun(Words(job + "80GiB")).exit_code, 0);
  const ProgramResult small = DryRun(Words(job + "1GiB"));
  EXPECT_EQ(small.exit_code, 2);
  EXPECT_THAT(small.err, HasSubstr("--device_memory=1GiB: the device of "));
  EXPECT_THAT(small.out,
              AllOf(HasSubstr("dry run: the job cannot start as it is, as said "
                              "at the end"),
                    HasSubstr("memory of each device")));
  // No host has so much.
  EXPECT_THAT(Planned(Words("--model=llama-3-70b --dataset=synthetic_tokens "
                            "--batch_size=1 --save_dir= --optimizer=adamw")),
              AllOf(HasSubstr("the job can start, but this host lacks memory"),
                    HasSubstr("note: this host's ranks hold ")));
  const ProgramResult both = DryRun(Words(job + "80GiB --fake_weights"));
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("--dry_run"));
}

}  // namespace
}  // namespace tandem::dry_run_test
