// What a user can get wrong: one clear line, an exit code, nothing left behind.

#include <algorithm>
#include <fstream>
#include <regex>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Refusal {
  std::string name;
  Flags flags;
  std::vector<std::string> says;
  int exit_code;
};

// Without what a sanitizer says of memory that there is not.
std::string OwnLines(const std::string& err) {
  const std::regex foreign("==[0-9]+==WARNING: [A-Za-z]+Sanitizer failed.*\n");
  return std::regex_replace(err, foreign, "");
}

class RefusalTest : public testing::TestWithParam<Refusal> {};

TEST_P(RefusalTest, SaysWhatIsWrongInOneLine) {
  Program program(kTrain, SmallJob(GetParam().flags));
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, GetParam().exit_code) << result.err;
  for (const std::string& text : GetParam().says) {
    EXPECT_THAT(result.err, HasSubstr(text));
  }
  const bool alone = result.err.find("tandem:") == std::string::npos;
  if (alone) {
    const std::string own = OwnLines(result.err);
    EXPECT_EQ(std::count(own.begin(), own.end(), '\n'), 1) << result.err;
  }
  EXPECT_THAT(result.err, Not(HasSubstr("frame #")));
  EXPECT_THAT(result.err, Not(HasSubstr("Exception raised from")));
  EXPECT_TRUE(program.LivingProcesses().empty());
}

std::string FileWith(const std::string& name, const std::string& contents) {
  const std::string path = NewFolder("file") + "/" + name;
  std::ofstream(path) << contents;
  return path;
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusalTest,
    testing::Values(
        Refusal{
            "UnknownFlag", {"--bach_size=8"}, {"bach_size", "batch_size"}, 2},
        Refusal{"NotANumber",
                {"--epochs=many"},
                {"--epochs=many: takes a whole number"},
                2},
        Refusal{"StrayWord", {"resnet18"}, {"resnet18"}, 2},
        Refusal{"UnknownModel",
                {"--model=resnet19"},
                {"resnet19", "resnet18", "gpt_tiny"},
                2},
        Refusal{"UnknownDataset",
                {"--dataset=cifar"},
                {"cifar", "fashion_mnist", "synthetic"},
                2},
        Refusal{"ModelAndDataDoNotFit",
                {"--model=gpt_tiny"},
                {"gpt_tiny", "try --dataset=synthetic_tokens"},
                2},
        Refusal{"BatchDoesNotDivide",
                {"--nproc_per_node=2", "--batch_size=15"},
                {"--batch_size=15: a global batch of 15", "2"},
                2},
        Refusal{"BatchBeyondTheData",
                {"--batch_size=1000"},
                {"--batch_size=1000", "96"},
                2},
        Refusal{"MissingData",
                {"--dataset=mnist", "--data_dir=/nonexistent",
                 "--synthetic_shape=", "--synthetic_samples=0"},
                {"/nonexistent"},
                2},
        Refusal{"MissingCheckpoint",
                {"--resume=/nonexistent/x.safetensors"},
                {"/nonexistent/x.safetensors"},
                2},
        Refusal{"NoCheckpoint",
                {"--resume=" + FileWith("garbage", "not a checkpoint")},
                {"garbage"},
                2},
        Refusal{"UnwritableFolder",
                {"--save_dir=/proc/nowhere"},
                {"/proc/nowhere"},
                2},
        Refusal{"UnwritableMetrics",
                {"--metrics_file=/nonexistent/m.jsonl"},
                {"/nonexistent/m.jsonl"},
                2},
        Refusal{"ContradictoryStrategy",
                {"--strategy=single", "--nproc_per_node=2"},
                {"single"},
                2},
        Refusal{"TokensForAnMlp",
                {"--dataset=synthetic_tokens", "--synthetic_shape=16"},
                {"mlp_small", "token numbers", "try --dataset=fashion_mnist"},
                2},
        Refusal{"ModelBeyondMemory",
                {"--model=mlp_wide", "--synthetic_shape=1,32768,32768"},
                {"memory"},
                1},
        Refusal{"MasterAddressOfAnotherMachine",
                {"--nproc_per_node=2", "--master_addr=203.0.113.7"},
                {"203.0.113.7"},
                1},
        Refusal{"NoParameterWithoutDecay",
                {"--weight_decay=0.1", "--no_weight_decay_on=gamma"},
                {"--no_weight_decay_on=gamma", "mlp_small", "weight"},
                2},
        Refusal{"PowerSgdsOptionWithoutIt",
                {"--nopower_sgd_warm_start", "--comm_hook=bf16"},
                {"--power_sgd_warm_start", "--comm_hook=bf16"},
                2},
        Refusal{"NoSuchDevice",
                {"--device=cuda"},
                {"--device=cuda: this program is built without CUDA"},
                2},
        Refusal{"MorePartsThanSamples",
                {"--nproc_per_node=2", "--batch_size=32",
                 "--gradient_accumulation_steps=17"},
                {"--gradient_accumulation_steps=17: a rank has 16 samples of "
                 "--batch_size=32"},
                2},
        Refusal{"KeepEveryWithoutKeepLast",
                {"--keep_every=5"},
                {"--keep_every=5", "without --keep_last"},
                2},
        Refusal{"AStepToTraceThatNeverComes",
                {"--trace_file=/tmp/t.json", "--trace_step=50"},
                {"--trace_file=/tmp/t.json would never be written",
                 "step 50 (--trace_step) does not come", "1 to 6"},
                2},
        Refusal{"AHookWithoutReplicas",
                {"--comm_hook=fp16"},
                {"--comm_hook=fp16 is about several replicas"},
                2},
        Refusal{"AutoWithoutAFolder",
                {"--resume=auto", "--save_dir="},
                {"--resume=auto", "--save_dir is empty"},
                2},
        Refusal{"UnknownBackend",
                {"--backend=carrier_pigeon", "--nproc_per_node=2"},
                {"carrier_pigeon", "gloo"},
                2},
        Refusal{"Diverged",
                {"--learning_rate=1e30", "--epochs=5"},
                {"diverged", "--learning_rate"},
                1}),
    [](const auto& info) { return info.param.name; });

TEST(ThreadsOfTheEnvironmentTest, AreRefusedWhereTheyAreNone) {
  for (const char* threads : {"3000", "abc", "-3"}) {
    ProgramOptions options;
    options.environment["OMP_NUM_THREADS"] = threads;
    const ProgramResult result =
        RunProgram(kTrain, SmallJob({"--intra_op_threads=0"}), options);
    EXPECT_EQ(result.exit_code, 2) << threads;
    EXPECT_THAT(result.err,
                HasSubstr("OMP_NUM_THREADS=" + std::string(threads) +
                          ": must be a whole number from 1 to"));
  }
}

// A job goes on only as what it was.
class OtherJobTest : public testing::TestWithParam<Flags> {};

TEST_P(OtherJobTest, ResumingNamesWhatDiffers) {
  const std::string folder = NewFolder("other");
  const Flags was = SmallJob({"--max_steps=1", "--save_dir=" + folder});
  RunJobForEvents(was);
  Flags other = SmallJob({"--resume=" + folder});
  other.push_back(GetParam()[0]);
  const ProgramResult result = RunProgram(kTrain, other);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr(GetParam()[0]));
  EXPECT_THAT(result.err, HasSubstr(GetParam()[1]));
}

INSTANTIATE_TEST_SUITE_P(
    All, OtherJobTest,
    testing::Values(Flags{"--model=mlp_deep", "--model=mlp_small"},
                    Flags{"--seed=7", "--seed=0"},
                    Flags{"--batch_size=32", "--batch_size=16"},
                    Flags{"--optimizer=adam", "--optimizer=sgd"}));

TEST(HelpTest, ListsEveryFlag) {
  const ProgramResult result = RunProgram(kTrain, {"--help"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* flag : {"model",
                           "dataset",
                           "data_dir",
                           "epochs",
                           "max_steps",
                           "batch_size",
                           "learning_rate",
                           "momentum",
                           "weight_decay",
                           "optimizer",
                           "seed",
                           "device",
                           "intra_op_threads",
                           "nproc_per_node",
                           "workers",
                           "log_every",
                           "save_dir",
                           "save_every",
                           "resume",
                           "eval_only",
                           "metrics_file",
                           "nnodes",
                           "node_rank",
                           "master_addr",
                           "master_port",
                           "world_size",
                           "rank",
                           "local_rank",
                           "dist_url",
                           "timeout",
                           "log_dir",
                           "strategy",
                           "comm_hook",
                           "power_sgd_rank",
                           "power_sgd_start_step",
                           "power_sgd_min_compression_rate",
                           "power_sgd_use_error_feedback",
                           "power_sgd_warm_start",
                           "power_sgd_orthogonalization_epsilon",
                           "power_sgd_random_seed",
                           "clip_grad_norm_type",
                           "error_if_nonfinite",
                           "no_weight_decay_on",
                           "backend"}) {
    EXPECT_TRUE(std::regex_search(
        result.out, std::regex("\n  --" + std::string(flag) + "( \\(.*)?\n")))
        << flag;
  }
}

}  // namespace
}  // namespace tandem
