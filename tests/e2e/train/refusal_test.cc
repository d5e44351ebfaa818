// What a user can get wrong: one clear line, an exit code, nothing left behind.

#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::refusal_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using Rows = std::vector<RefusalRow>;

std::string FileWith(const std::string& name, const std::string& contents) {
  const std::string path = NewFolder("file") + "/" + name;
  std::ofstream(path) << contents;
  return path;
}

class RefusalTest : public testing::TestWithParam<RefusalRow> {};

TEST_P(RefusalTest, SaysWhatIsWrongInOneLine) {
  ExpectRefused(SmallJob(), GetParam(), /*in_one_line=*/true);
}

Rows JobRows() {
  return {
      {"UnknownFlag", "--bach_size=8", "bach_size|batch_size"},
      {"NotANumber", "--epochs=many", "--epochs=many: takes a whole number"},
      {"StrayWord", "resnet18", "resnet18"},
      {"UnknownModel", "--model=resnet19",
       "resnet19|resnet18|train --help=model lists all"},
      {"UnknownDataset", "--dataset=cifar", "cifar|fashion_mnist|synthetic"},
      {"ModelAndDataDoNotFit", "--model=gpt_tiny",
       "gpt_tiny|try --dataset=synthetic_tokens"},
      {"BatchDoesNotDivide", "--nproc_per_node=2 --batch_size=15",
       "--batch_size=15: a global batch of 15|2"},
      {"BatchBeyondTheData", "--batch_size=1000", "--batch_size=1000|96"},
      {"MissingData",
       "--dataset=mnist --data_dir=/nonexistent --synthetic_shape= "
       "--synthetic_samples=0",
       "/nonexistent"},
      {"MissingCheckpoint", "--resume=/nonexistent/x.safetensors",
       "/nonexistent/x.safetensors"},
      {"NoCheckpoint", "--resume=" + FileWith("garbage", "not a checkpoint"),
       "garbage"},
      {"UnwritableFolder", "--save_dir=/proc/nowhere", "/proc/nowhere"},
      {"UnwritableReport", "--report=/nonexistent/r.html",
       "/nonexistent/r.html"},
      {"UnwritableMetrics", "--metrics_file=/nonexistent/m.jsonl",
       "/nonexistent/m.jsonl"},
      {"ContradictoryStrategy", "--strategy=single --nproc_per_node=2",
       "single"},
      {"TokensForAnMlp", "--dataset=synthetic_tokens --synthetic_shape=16",
       "mlp_small|token numbers|try --dataset=fashion_mnist"},
      {"ModelBeyondMemory", "--model=mlp_wide --synthetic_shape=1,32768,32768",
       "memory", 1},
      {"MasterAddressOfAnotherMachine",
       "--nproc_per_node=2 --master_addr=203.0.113.7", "203.0.113.7", 1},
      {"NoParameterWithoutDecay",
       "--weight_decay=0.1 --no_weight_decay_on=gamma",
       "--no_weight_decay_on=gamma|mlp_small|weight"},
      {"NoMatrixForMuon",
       "--optimizer=muon --model=resnet18 --synthetic_shape=3,32,32",
       "--optimizer=muon is for matrices of hidden layers|resnet18"},
      {"PowerSgdsOptionWithoutIt", "--comm_hook=bf16:warm_start=false",
       "--comm_hook=bf16:warm_start=false|bf16 has no options"},
      {"AFlagThatWas", "--power_sgd_rank=2",
       "write --comm_hook=powersgd:rank=NUMBER"},
      {"ASwitchThatWas", "--nogradient_as_bucket_view", "leave it out"},
      {"NoSuchDevice", "--device=cuda",
       "--device=cuda: this program is built without CUDA"},
      {"MorePartsThanSamples",
       "--nproc_per_node=2 --batch_size=32 --gradient_accumulation_steps=17",
       "--gradient_accumulation_steps=17: a rank has 16 samples of "
       "--batch_size=32"},
      {"KeepEveryWithoutKeepLast", "--keep_every=5",
       "--keep_every=5|without --keep_last"},
      {"AStepToTraceThatNeverComes",
       "--trace_file=/tmp/t.json --trace_steps=50",
       "--trace_file=/tmp/t.json would never be written|step 50 "
       "(--trace_steps) does not come|1 to 6"},
      {"ATracesOldSpelling", "--trace_file=/tmp/t.json --trace_step=2",
       "unknown flag --trace_step: write --trace_steps=STEP"},
      {"ATraceThatEndsBeforeItBegins",
       "--trace_file=/tmp/t.json --trace_steps=4-2",
       "--trace_steps=4-2: takes a step|10-12"},
      {"AHookWithoutReplicas", "--comm_hook=fp16",
       "--comm_hook=fp16 is about several replicas"},
      {"AutoWithoutAFolder",
       "--resume=auto --save_dir=", "--resume=auto|--save_dir is empty"},
      {"UnknownBackend", "--backend=carrier_pigeon --nproc_per_node=2",
       "carrier_pigeon|gloo"},
      {"Diverged", "--learning_rate=1e30 --epochs=5",
       "diverged|--learning_rate", 1},
  };
}

INSTANTIATE_TEST_SUITE_P(All, RefusalTest, testing::ValuesIn(JobRows()),
                         RowName<RefusalRow>);

class PipelineRefusalTest : public testing::TestWithParam<RefusalRow> {};

// Before anything is trained.
TEST_P(PipelineRefusalTest, SaysWhatIsWrong) {
  const ProgramResult result =
      ExpectRefused(Small("--strategy=pipeline --devices_per_rank=2"),
                    GetParam(), /*in_one_line=*/true);
  EXPECT_THAT(result.out, Not(HasSubstr("step 1")));
}

Rows PipelineRows() {
  const auto schedule = [](const std::string& text) {
    return "--schedule=" + FileWith("mine.txt", text);
  };
  return {
      {"OneDevice", "--devices_per_rank=1",
       "--strategy=pipeline needs several devices"},
      {"NotThatManyRanks", "--pipe=2",
       "--pipe=2: the model takes 2 ranks or a multiple, but this job has 1: "
       "give "
       "--nproc_per_node=2"},
      {"Replicas", "--pipe=2 --nproc_per_node=4",
       "--strategy=pipeline: the strategy pipeline runs one replica|data 2 x "
       "pipe 2|use hybrid"},
      {"PipeOfAnotherStrategy", "--pipe=2 --nproc_per_node=2 --strategy=ddp",
       "--pipe=2 needs --strategy=pipeline|--strategy=ddp"},
      {"PipelinesFlagOfAnotherStrategy",
       "--strategy=model_parallel --deferred_batch_norm",
       "--deferred_batch_norm=true is for pipelines"},
      {"MoreStagesThanLayers",
       "--model=mlp_dropout --devices_per_rank=4 --schedule=zb_v",
       "8 parts need as many layers|has 7"},
      {"MoreStagesThanLayersOnRanks",
       "--model=mlp_dropout --pipe=2 --nproc_per_node=2 --schedule=zb_v",
       "8 parts need as many layers|has 7"},
      {"UnknownSchedule", "--schedule=1f2b", "1f2b|zb_h1"},
      {"InterleavedMicrobatches",
       "--schedule=interleaved_1f1b --microbatches=5",
       "--microbatches=5|interleaved_1f1b|looped_bfs"},
      {"Chunks", "--schedule=gpipe --chunks=2", "--chunks=2|gpipe has 1"},
      {"MoreMicrobatchesThanSamples", "--microbatches=17",
       "--microbatches=17 is more|--batch_size=16"},
      {"MicrobatchesTwice", "--microbatches=4 --microbatch_size=4",
       "say the same thing twice"},
      {"MicrobatchesByTimeInAReproducibleJob",
       "--microbatches=auto --reproducible --microbatch_size=4",
       "--microbatches=auto goes by measured times|--reproducible"},
      {"NoNumberOfMicrobatchesFits",
       "--microbatches=auto --device=sim --device_memory=32KiB",
       "--microbatches=auto|memory", 1},
      {"MissingFile", "--schedule=/no/such/file", "/no/such/file"},
      {"FileThatDeadlocks", schedule("B0 F0\nF0 B0\n"), "mine.txt"},
      {"FileThatForgets", schedule("F0 F1 B0 B1\nF0 B0 F1\n"),
       "mine.txt|stage 1 does microbatch 1's forward 1 times, backward 0"},
      {"FileThatIsNoSchedule", schedule("F0 X0\nF0 B0\n"), "mine.txt|X0"},
      {"UnknownLayer", "--balance=fc9", "fc9|fc8"},
      {"CutsOfThreeStages", "--balance=fc2,fc3", "fc2,fc3"},
      {"NoExpression", "--balance=type:[", "--balance: balance by type:["},
      {"NoSuchType", "--balance=type:Conv",
       "type:Conv matches 0 layers|Linear"},
      {"NothingFits", "--balance=profile --device=sim --device_memory=32KiB",
       "memory", 1},
      {"Hook", "--comm_hook=fp16", "--comm_hook=fp16|averages nothing"},
      {"Accumulation", "--gradient_accumulation_steps=2",
       "--gradient_accumulation_steps=2|--microbatches"},
      {"Averaging", "--average_parameters_every=4",
       "--average_parameters_every=4"},
      {"Buckets", "--bucket_cap_mb=5", "--bucket_cap_mb=5"},
      {"Unused", "--find_unused_parameters", "--find_unused_parameters=true"},
  };
}

INSTANTIATE_TEST_SUITE_P(All, PipelineRefusalTest,
                         testing::ValuesIn(PipelineRows()),
                         RowName<RefusalRow>);

class SimRefusalTest : public testing::TestWithParam<RefusalRow> {};

TEST_P(SimRefusalTest, SaysWhatIsWrong) {
  ExpectRefused(SmallJob(), GetParam());
}

// On simulated devices.
Rows SimRows() {
  const std::string sim = "--device=sim ";
  const std::string two = sim + "--devices_per_rank=2 ";
  return {
      {"UnknownLayer", two + "--balance=fc9",
       "--balance|no layer \"fc9\"|did you mean fc|flatten"},
      {"CutBeyondTheEnd", two + "--balance=16", "--balance|\"16\"|16 layers"},
      {"TooManyCuts", two + "--balance=fc2,fc3", "--balance=fc2,fc3|2"},
      {"CutsOutOfOrder", sim + "--devices_per_rank=3 --balance=fc3,fc2",
       "--balance|fc2 (3) comes before|order of the model"},
      {"CutBeforeTheFirstLayer", two + "--balance=flatten",
       "--balance|flatten (0)|no layer"},
      {"CutOfOneDevice", sim + "--balance=fc2",
       "--balance=fc2|--devices_per_rank"},
      {"MemoryOfTheCpu", "--device_memory=1GiB",
       "--device_memory|--device=sim|cpu"},
      {"MemoryThatIsNoSize", sim + "--device_memory=lots",
       "--device_memory=lots|80GiB"},
      {"NoMemory", sim + "--device_memory=0", "--device_memory=0|80GiB"},
      {"AsynchronousCpu", "--sim_async", "--sim_async|--device=sim|cpu"},
      {"DelayWithoutQueues", sim + "--sim_delay_us=5",
       "--sim_delay_us|--sim_async"},
      {"NegativeDelay", sim + "--sim_async --sim_delay_us=-1",
       "--sim_delay_us=-1"},
      {"SingleOnTwoDevices", two + "--strategy=single",
       "--strategy=single|devices per rank 2"},
      {"NoDevice", sim + "--devices_per_rank=0", "--devices_per_rank=0"},
      {"TooManyDevices", sim + "--devices_per_rank=17",
       "needs 17 devices|16 were found"},
      {"TooManyDevicesOfRanks",
       sim + "--devices_per_rank=6 --nproc_per_node=3 --batch_size=15",
       "3 ranks need 18 devices, 6 each|16 were found|fewer ranks"},
      {"MorePartsThanLayers",
       sim + "--devices_per_rank=8 --model=toy --synthetic_shape=10 "
             "--synthetic_classes=5",
       "8"},
      {"NcclTakesOneRankADevice", sim + "--share_devices --backend=sim_nccl",
       "--share_devices|--backend=sim_nccl needs a device"},
      {"TheCpuIsSharedAnyway", "--share_devices",
       "--share_devices is for GPUs"},
  };
}

INSTANTIATE_TEST_SUITE_P(All, SimRefusalTest, testing::ValuesIn(SimRows()),
                         RowName<RefusalRow>);

TEST(RefusalTableTest, NoRowIsMissing) {
  EXPECT_EQ(JobRows().size(), 33u);
  EXPECT_EQ(PipelineRows().size(), 7u + 9 + 7 + 5);
  EXPECT_EQ(SimRows().size(), 17u + 2);
}

TEST(ThreadsOfTheEnvironmentTest, AreRefusedWhereTheyAreNone) {
  for (const std::string threads : {"3000", "abc", "-3"}) {
    ProgramOptions options;
    options.environment["OMP_NUM_THREADS"] = threads;
    const ProgramResult result =
        RunProgram(kTrain, Small("--intra_op_threads=0"), options);
    EXPECT_EQ(result.exit_code, 2) << threads;
    EXPECT_THAT(result.err, HasSubstr("OMP_NUM_THREADS=" + threads +
                                      ": must be a whole number from 1 to"));
  }
}

TEST(HelpTest, ListsEveryFlag) {
  const ProgramResult result = RunProgram(kTrain, {"--help=all"});
  EXPECT_EQ(result.exit_code, 0);
  for (const std::string& flag :
       Words("model dataset data_dir epochs max_steps batch_size "
             "learning_rate momentum weight_decay optimizer seed device "
             "intra_op_threads nproc_per_node workers log_every save_dir "
             "save_every resume eval_only metrics_file nnodes node_rank "
             "master_addr master_port world_size rank local_rank dist_url "
             "timeout log_dir strategy comm_hook "
             "clip_grad_norm_type ema_decay error_if_nonfinite "
             "no_weight_decay_on "
             "backend")) {
    EXPECT_TRUE(std::regex_search(result.out,
                                  std::regex("\n  --" + flag + "( \\(.*)?\n")))
        << flag;
  }
  for (const std::string& flag :
       Words("device devices_per_rank sim_async sim_delay_us sim_delay_seed")) {
    EXPECT_THAT(result.out, HasSubstr("\n  --" + flag + " "));
  }
  for (const std::string& flag : Words("device_memory")) {
    EXPECT_THAT(result.out, HasSubstr("\n  --" + flag));
  }
  EXPECT_THAT(result.out, HasSubstr("sim: simulated devices"));
}

}  // namespace
}  // namespace tandem::refusal_test
