// --fake_weights tells what a job would take: the memory that the same job then
// takes on simulated devices that compute (cell by cell); of a model too large
// for that, in no memory; and it refuses what has no meaning without values.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <regex>
#include <sstream>

#include "absl/status/statusor.h"
#include "core/base/byte_size.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Cells = std::map<std::string, std::string>;

std::vector<std::string> ColumnsOf(const std::string& line) {
  const std::regex gap(" {2,}");
  return {std::sregex_token_iterator(line.begin(), line.end(), gap, -1),
          std::sregex_token_iterator()};
}

// The rehearsal's table, by device and column.
std::map<std::string, Cells> TableIn(const std::string& text) {
  std::map<std::string, Cells> table;
  std::vector<std::string> head;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> columns = ColumnsOf(line);
    if (columns.front() == "device") head = columns;
    if (columns.front().rfind("sim:", 0) != 0) continue;
    EXPECT_EQ(columns.size(), head.size()) << line;
    for (size_t i = 0; i < columns.size() && i < head.size(); ++i) {
      table[columns[0]][head[i]] = columns[i];
    }
  }
  return table;
}

// "5 MiB: parameters 3 MiB, other 2 MiB" as cells.
Cells CellsOf(const std::string& peak) {
  Cells cells = {{"peak", peak.substr(0, peak.find(':'))}};
  const std::regex part("([a-z]+) ([0-9.]+ [A-Za-z]+)");
  for (auto it = std::sregex_iterator(peak.begin(), peak.end(), part);
       it != std::sregex_iterator(); ++it) {
    cells[(*it)[1]] = (*it)[2];
  }
  return cells;
}

// There is as much of them at any time.
bool IsOfTheModel(const std::string& column) {
  return column == "parameters" || column == "optimizer";
}

constexpr int kMicrobatches = 8;

int64_t BytesOf(const std::string& cell) {
  const absl::StatusOr<int64_t> bytes = ParseByteSize(cell);
  EXPECT_TRUE(bytes.ok()) << cell;
  return bytes.value_or(0);
}

// Whether a message between two stages that is not needed yet has come, when
// most is held, is a matter of timing, of training as of a rehearsal. So cells
// differ by a whole number of messages, and by those of all microbatches at
// most, in both directions. Cells have four digits, and targets of a microbatch
// a few bytes.
void ExpectEqualButForMessages(const std::string& mine, const std::string& cell,
                               int64_t message) {
  const double bytes = static_cast<double>(BytesOf(cell));
  const double more = std::abs(static_cast<double>(BytesOf(mine)) - bytes);
  const double messages = std::round(more / static_cast<double>(message));
  EXPECT_LE(messages, 2 * kMicrobatches) << mine << " and " << cell;
  EXPECT_NEAR(more, messages * static_cast<double>(message), 256 + 1e-3 * bytes)
      << mine << " and " << cell;
}

struct Layout {
  std::string name;
  std::string flags;
  int devices;
  int64_t message = 0;  // bytes between stages; 0: none can come early
};

class RehearsalTest : public testing::TestWithParam<Layout> {};

TEST_P(RehearsalTest, TellsTheMemoryOfTheTrainingItself) {
  const Flags job =
      Small("--device=sim --max_steps=2 --kernels=fixed --peak_tflops=1 " +
            GetParam().flags);
  const Events events = RunJobForEvents(job);
  ASSERT_FALSE(events.empty());
  const nlohmann::json trained = events.back()["device_memory"];
  const ProgramResult told =
      RunProgram(kTrain, Joined(job, {"--fake_weights"}));
  ASSERT_EQ(told.exit_code, 0) << told.err;
  std::map<std::string, Cells> table = TableIn(told.out);
  ASSERT_EQ(trained.size(), GetParam().devices);
  ASSERT_EQ(table.size(), trained.size()) << told.out;
  int cells = 0;
  for (const auto& [device, peak] : trained.items()) {
    const Cells expected = CellsOf(peak);
    for (const char* column : {"peak", "parameters", "gradients", "optimizer",
                               "activations", "temporaries", "other"}) {
      const auto found = expected.find(column);
      const std::string cell = found == expected.end() ? "0 B" : found->second;
      const std::string& mine = table[device][column];
      SCOPED_TRACE(std::string(column) + " of " + device + ": " +
                   std::string(peak));
      if (GetParam().message == 0 || IsOfTheModel(column)) {
        EXPECT_EQ(mine, cell);
      } else {
        ExpectEqualButForMessages(mine, cell, GetParam().message);
      }
      ++cells;
    }
  }
  std::printf("%d cells compared\n", cells);
  EXPECT_EQ(cells, 7 * GetParam().devices);
  EXPECT_THAT(told.out, HasSubstr("a step would take "));
  EXPECT_THAT(told.out, HasSubstr("fullest: sim:"));
}

// gpt_tiny, for 24 tokens a sample.
constexpr int64_t kFloat = 4;
constexpr int64_t kWidth = 128;
constexpr int64_t kBlocks = 4;
constexpr int64_t kTokens = 24;
constexpr char kGpt[] =
    "--model=gpt_tiny --dataset=synthetic_tokens --synthetic_shape= "
    "--context=24 --optimizer=adamw ";

// Two samples go from stage to stage.
constexpr int64_t kMessage = 2 * kTokens * kWidth * kFloat;

std::vector<Layout> Layouts() {
  const std::string tokens = kGpt;
  const std::string pipeline =
      tokens + "--devices_per_rank=2 --strategy=pipeline ";
  const std::string of_two = tokens + "--nproc_per_node=2 ";
  const std::string of_four = tokens + "--nproc_per_node=4 ";
  const std::string by_layers = "--shard_min_num_params=1";
  return {
      {"OneDevice", "", 1},
      {"OneDeviceOfTokens", tokens, 1},
      // A test set of 120 samples, far more than a batch. Whoever took all of
      // it at once would tell of more than training ever holds...
      {"TokensTestedInPieces",
       tokens + "--batch_size=2 --synthetic_samples=960", 1},
      // ... and here, where their inputs are twice as large as the weights,
      // whoever took a training batch of them would tell of less.
      {"ImagesTestedInALargerBatch",
       "--batch_size=2 --synthetic_samples=960 --eval_batch_size=120 "
       "--synthetic_shape=1,64,64",
       1},
      {"TwoParts", "--devices_per_rank=2", 2},
      {"PipelineOfOneMicrobatch", pipeline + "--microbatch_size=16", 2},
      {"VocabularyInParts",
       pipeline + "--microbatch_size=16 --vocab_parallel=2", 2},
      {"GPipe", pipeline + "--microbatch_size=2 --schedule=gpipe", 2, kMessage},
      {"OneForwardOneBackward",
       pipeline + "--microbatch_size=2 --schedule=1f1b", 2, kMessage},
      {"Replicas", "--nproc_per_node=2", 2},
      {"ReplicasOfTokens", tokens + "--nproc_per_node=2 --dtype=bf16", 2},
      {"ShardedReplicas",
       tokens + "--nproc_per_node=3 --batch_size=18 --shard=optimizer", 3},
      {"GradientsShared", of_two + "--shard=gradients " + by_layers, 2},
      {"ParametersShared", of_two + "--shard=parameters " + by_layers, 2},
      {"ParametersSharedAsCopies",
       of_two + "--shard=parameters --dtype=bf16 " + by_layers, 2},
      {"ParametersSharedComputedAgain",
       of_two + "--shard=parameters --checkpoint_every=1 " + by_layers, 2},
      {"ParametersOfStagesShared",
       of_four + "--pipe=2 --microbatch_size=8 --shard=parameters " + by_layers,
       4},
      {"ParametersOfStagesSharedInMicrobatches",
       of_four + "--pipe=2 --microbatch_size=2 --shard=parameters " + by_layers,
       4, kMessage},
      {"Tensor", of_two + "--tensor=2", 2},
      {"TensorOfWholeTokens", of_two + "--tensor=2 --nosequence_parallel", 2},
      {"TensorComputedAgain",
       of_two + "--tensor=2 --checkpoint_every=1 --dtype=bf16", 2},
      {"TensorAndStages", of_four + "--tensor=2 --pipe=2 --microbatch_size=16",
       4},
      // Each rank sends its tokens.
      {"TensorAndStagesInMicrobatches",
       of_four + "--tensor=2 --pipe=2 --microbatch_size=2", 4, kMessage / 2},
      {"TensorAndParametersShared",
       of_four + "--tensor=2 --shard=parameters " + by_layers, 4},
      {"StagesOnRanks",
       tokens + "--nproc_per_node=2 --pipe=2 --microbatch_size=16", 2},
      {"Hybrid",
       tokens + "--nproc_per_node=2 --devices_per_rank=2 --strategy=hybrid "
                "--microbatch_size=8",
       4},
  };
}

INSTANTIATE_TEST_SUITE_P(All, RehearsalTest, testing::ValuesIn(Layouts()),
                         RowName<Layout>);

// An all-reduce of all gradients of two replicas goes once over each one's
// link; a parameter has 4 bytes.
TEST(RehearsedTrafficTest, IsThatOfTheFormulas) {
  const Flags job = SmallJob({"--device=sim", "--fake_weights",
                              "--nproc_per_node=2", "--peak_tflops=1"});
  const ProgramResult free = RunProgram(kTrain, job);
  ASSERT_EQ(free.exit_code, 0) << free.err;
  EXPECT_THAT(free.out, HasSubstr("communication takes no time: give "
                                  "--sim_network_bandwidth\n"));
  const ProgramResult told =
      RunProgram(kTrain, Joined(job, {"--sim_network_bandwidth=0.001"}));
  ASSERT_EQ(told.exit_code, 0) << told.err;
  std::map<std::string, Cells> table = TableIn(told.out);
  ASSERT_EQ(table.size(), 2u) << told.out;
  for (auto& [device, cells] : table) {
    const auto parameters = static_cast<double>(BytesOf(cells["parameters"]));
    const auto sent = static_cast<double>(BytesOf(cells["in collectives"]));
    EXPECT_NEAR(sent, parameters, 1e-3 * parameters) << device;
    EXPECT_EQ(cells["received"], "0 B");
    // 1,000 bytes a millisecond, of which next to nothing is hidden.
    EXPECT_NEAR(std::stod(cells["waits ms"]), sent / 1e3, 0.02 * sent / 1e3);
  }
  EXPECT_THAT(told.out, HasSubstr(" ms of it waits for collectives"));
}

// What a rank sends in collectives in a step, in closed form.
struct Traffic {
  std::string name;
  std::string flags;
  int ranks;
  int64_t bytes;
};

class CollectiveTrafficTest : public testing::TestWithParam<Traffic> {};

TEST_P(CollectiveTrafficTest, IsThatOfTheFormula) {
  const Traffic& row = GetParam();
  const ProgramResult told = RunProgram(
      kTrain, Small(kGpt + row.flags +
                    " --device=sim --fake_weights --peak_tflops=1 "
                    "--sim_network_bandwidth=0.001 --nproc_per_node=" +
                    std::to_string(row.ranks)));
  ASSERT_EQ(told.exit_code, 0) << told.err;
  std::map<std::string, Cells> table = TableIn(told.out);
  ASSERT_EQ(table.size(), row.ranks) << told.out;
  const auto bytes = static_cast<double>(row.bytes);
  int cells = 0;
  for (auto& [device, columns] : table) {
    // Cells have four digits.
    EXPECT_NEAR(static_cast<double>(BytesOf(columns["in collectives"])), bytes,
                5e-4 * bytes)
        << device;
    EXPECT_EQ(columns["received"], "0 B");
    // 1,000 bytes a millisecond, of which next to nothing is hidden.
    EXPECT_NEAR(std::stod(columns["waits ms"]), bytes / 1e3, 1e-3 * bytes / 1e3)
        << device;
    cells += 2;
  }
  std::printf("%d cells compared\n", cells);
  EXPECT_EQ(cells, 2 * row.ranks);
}

// Each of n ranks sends (n - 1) / n of what is gathered, or reduced and
// scattered, and twice that of what is all-reduced.
std::vector<Traffic> Traffics() {
  constexpr int64_t kHead = kWidth * 256;  // and as many for the embedding
  constexpr int64_t kProducts = 12 * kWidth * kWidth;
  constexpr int64_t kBlock = kProducts + 13 * kWidth;
  constexpr int64_t kPositions = 128 * kWidth;
  constexpr int64_t kNorm = 2 * kWidth;
  constexpr int64_t kAll = 2 * kHead + kPositions + kBlocks * kBlock + kNorm;
  // Half of it each, by two replicas or more: gradients are reduced and
  // scattered; parameters gathered, after the step, or twice, where the end of
  // forward keeps the head for backward.
  constexpr int64_t kOnce = kFloat * 2 * kAll;
  constexpr int64_t kTwice = kFloat * (3 * kAll - kHead);
  // What is multiplied is gathered as bf16, of 2 bytes less.
  constexpr int64_t kCopies =
      kTwice - 2 * (2 * kBlocks * kProducts + 2 * kHead - kHead);
  // Forward there are two sums of activations a block, and the embedding's; and
  // as many backward, the head's for the embedding's. The loss gathers five
  // floats a token and rank. There are 16 samples.
  constexpr int64_t kActivations = 16 * kTokens * kWidth * kFloat;
  constexpr int64_t kSums = (4 * kBlocks + 2) * kActivations;
  constexpr int64_t kLoss = 16 * kTokens * 5 * kFloat;
  // With sequence parallelism, an all-gather and a reduce-scatter each, and
  // what goes into products is gathered again for their weights' gradients. All
  // ranks' gradients are summed of norms, positions, and biases behind sums.
  constexpr int64_t kAgain = (2 * kBlocks + 1) * kActivations;
  constexpr int64_t kSummed =
      kFloat * ((2 * kBlocks + 1) * kNorm + kPositions + 2 * kBlocks * kWidth);
  const std::string zero3 = "--shard=parameters --shard_min_num_params=1";
  return {
      {"GradientsShared", "--shard=gradients", 2, kOnce / 2},
      {"ParametersShared", zero3, 2, kTwice / 2},
      {"ParametersSharedByFour", zero3, 4, kTwice * 3 / 4},
      {"ParametersSharedAsCopies", zero3 + " --dtype=bf16", 2, kCopies / 2},
      {"ParametersOnce", zero3 + " --noreshard_after_forward", 2, kOnce / 2},
      {"TensorOfWholeTokens", "--tensor=2 --nosequence_parallel", 2,
       kSums + kLoss},
      {"TensorOfWholeTokensByFour", "--tensor=4 --nosequence_parallel", 4,
       kSums * 3 / 2 + 3 * kLoss},
      {"Tensor", "--tensor=2", 2, kSums + kAgain / 2 + kSummed + kLoss},
  };
}

INSTANTIATE_TEST_SUITE_P(All, CollectiveTrafficTest,
                         testing::ValuesIn(Traffics()), RowName<Traffic>);

// A head that shares the embedding's weight has the first gradient of a
// backward, and the embedding the last one: nothing else waits for that. Of
// twelve blocks there are three at most in full, of values and of gradients,
// and the embeddings, which are gathered with the first.
TEST(ShardedRehearsalTest, ATiedWeightHoldsNoOtherUp) {
  const Flags job = Words(
      "--model=gpt_baby --layers=12 --dataset=synthetic_tokens --context=64 "
      "--batch_size=8 --device=sim --save_dir= --fake_weights "
      "--nproc_per_node=4 --checkpoint_every=1 --shard=parameters");
  const ProgramResult told = RunProgram(kTrain, job);
  ASSERT_EQ(told.exit_code, 0) << told.err;
  const Cells cells = TableIn(told.out)["sim:0"];
  constexpr int64_t kBlock = 1774464 * 4;
  constexpr int64_t kEmbeddings = (256 + 64) * 384 * 4;
  constexpr int64_t kShare = 21516288;  // a quarter of all
  for (const char* column : {"parameters", "gradients"}) {
    EXPECT_LT(BytesOf(cells.at(column)), kShare + 3 * kBlock + kEmbeddings)
        << told.out;
  }
}

TEST(LargeRehearsalTest, WhatDoesNotFitIsTold) {
  const Flags job = Words(
      "--model=llama-3-70b --dataset=synthetic_tokens --context=2048 "
      "--device=sim --devices_per_rank=8 --strategy=pipeline "
      "--microbatch_size=1 --batch_size=16 --optimizer=adamw "
      "--fake_weights --device_memory=80GiB --peak_tflops=989 "
      "--sim_memory_bandwidth=3350");
  const ProgramResult told = RunProgram(kTrain, job);
  EXPECT_EQ(told.exit_code, 1) << told.err;
  EXPECT_EQ(TableIn(told.out).size(), 8) << told.out;
  EXPECT_THAT(told.err, AllOf(HasSubstr("it does not fit: sim:"),
                              HasSubstr("of --device_memory=80GiB"),
                              HasSubstr("take smaller microbatches, or cut the "
                                        "model over more devices")));
  const ProgramResult fits =
      RunProgram(kTrain, Joined(job, {"--device_memory=300GiB"}));
  EXPECT_EQ(fits.exit_code, 0) << fits.err;
  EXPECT_THAT(fits.out, HasSubstr("of --device_memory=300GiB"));
}

class RehearsalRefusalTest : public testing::TestWithParam<RefusalRow> {};

TEST_P(RehearsalRefusalTest, SaysWhatIsWrong) {
  const ProgramResult result =
      ExpectRefused(Small("--device=sim --fake_weights"), GetParam());
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
      << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("fullest")));
}

INSTANTIATE_TEST_SUITE_P(
    All, RehearsalRefusalTest,
    testing::Values(
        RefusalRow{"OnTheCpu", "--device=cpu", "set --device=sim, not cpu"},
        RefusalRow{"Servers", "--nproc_per_node=2 --strategy=parameter_server",
                   "leave out --strategy=parameter_server"},
        RefusalRow{"Resumed", "--resume=/checkpoint", "leave out --resume"},
        RefusalRow{"InitFrom", "--init_from=/weights", "leave out --init_from"},
        RefusalRow{"Saved", "--save_dir=/folder", "leave out --save_dir"},
        RefusalRow{"Evaluated", "--eval_only --init_from=/weights",
                   "leave out --eval_only"},
        RefusalRow{"BandwidthAlone",
                   "--nofake_weights --sim_memory_bandwidth=3350",
                   "--sim_memory_bandwidth is for --fake_weights"}),
    RowName<RefusalRow>);

}  // namespace
}  // namespace tandem
