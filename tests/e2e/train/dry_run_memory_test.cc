// What --dry_run says that a device holds is what it holds when all ranks
// rehearse the job, which is what simulated devices that compute hold
// (rehearsal_test.cc): within 3 %, over layouts of GPTs and Llamas. So is the
// state by which --balance=profile cuts.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/byte_size.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

struct Layout {
  std::string name;
  std::string flags;
  int pipe = 1;
  int tensor = 1;
};

// The column of each row that begins with `row`, in the table whose head begins
// with `head`, and which an empty line ends.
std::vector<int64_t> ColumnOf(const std::string& text, const std::string& head,
                              const std::string& row,
                              const std::string& column) {
  const std::regex gap(" {2,}");
  std::vector<int64_t> cells;
  size_t index = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) index = 0;
    line.erase(0, line.find_first_not_of(' '));
    const std::vector<std::string> cut = {
        std::sregex_token_iterator(line.begin(), line.end(), gap, -1),
        std::sregex_token_iterator()};
    if (cut.front() == head) {
      for (size_t i = 0; i < cut.size(); ++i) {
        if (cut[i] == column) index = i;
      }
    } else if (index > 0 && std::regex_match(cut.front(), std::regex(row))) {
      const absl::StatusOr<int64_t> bytes = ParseByteSize(cut.at(index));
      EXPECT_TRUE(bytes.ok()) << line;
      cells.push_back(bytes.value_or(0));
    }
  }
  return cells;
}

std::string OutputOf(const Flags& flags) {
  const ProgramResult run = RunProgram(kTrain, flags);
  EXPECT_EQ(run.exit_code, 0) << Typed(flags) << "\n" << run.err;
  return run.out;
}

class DryRunMemoryTest : public testing::TestWithParam<Layout> {};

TEST_P(DryRunMemoryTest, IsThatOfTheRehearsalOfAllRanks) {
  const Layout& layout = GetParam();
  const Flags job = Words(
      "--dataset=synthetic_tokens --synthetic_samples=64 --device=sim "
      "--save_dir= --optimizer=adamw " +
      layout.flags);
  const std::string told = OutputOf(Joined(job, {"--dry_run"}));
  const std::string rehearsed = OutputOf(Joined(job, {"--fake_weights"}));
  const std::vector<int64_t> said =
      ColumnOf(told, "device", "[0-9]+", "together");
  const std::vector<int64_t> held =
      ColumnOf(rehearsed, "device", "sim:[0-9]+", "peak");
  ASSERT_FALSE(said.empty()) << told;
  ASSERT_EQ(said.size() % static_cast<size_t>(layout.pipe), 0u);
  const size_t devices = said.size() / static_cast<size_t>(layout.pipe);
  // In a mesh the ranks that share a layer are neighbours.
  for (size_t i = 0; i < said.size(); ++i) {
    const size_t rank = i / devices * static_cast<size_t>(layout.tensor);
    const size_t at = rank * devices + i % devices;
    ASSERT_LT(at, held.size()) << rehearsed;
    const double ratio =
        static_cast<double>(said[i]) / static_cast<double>(held[at]);
    std::printf("%s, device %zu: %s said, %s held, %+.2f %%\n",
                layout.name.c_str(), i, FormatBytes(said[i]).c_str(),
                FormatBytes(held[at]).c_str(), 100 * (ratio - 1));
    EXPECT_NEAR(ratio, 1, 0.03) << told << rehearsed;
  }
  std::printf("%zu cells compared\n", said.size());
}

std::vector<Layout> Layouts() {
  const std::string gpt = "--model=gpt_baby --context=64 --batch_size=16 ";
  const std::string llama =
      "--model=llama-3.2-1b --layers=4 --width=512 --ffn_width=1536 --heads=8 "
      "--kv_heads=4 --context=64 --batch_size=16 ";
  std::vector<Layout> all;
  for (const auto& [model, flags] :
       {std::pair("Gpt", gpt), std::pair("Llama", llama)}) {
    const auto add = [&, model = std::string(model), flags = flags](
                         const std::string& name, const std::string& more,
                         int pipe = 1, int tensor = 1) {
      all.push_back({model + name, flags + more, pipe, tensor});
    };
    add("Alone", "");
    add("ComputedAgain", "--checkpoint_every=1 --dtype=bf16");
    add("LossInChunks", "--loss_chunk=64");
    add("Accumulated", "--gradient_accumulation_steps=4");
    add("Replicas", "--nproc_per_node=2 --shard=off");
    add("OptimizerShared", "--nproc_per_node=4 --shard=optimizer --dtype=bf16");
    add("GradientsShared", "--nproc_per_node=2 --shard=gradients");
    add("ParametersShared",
        "--nproc_per_node=4 --shard=parameters --checkpoint_every=1");
    add("OneForwardOneBackward", "--nproc_per_node=2 --pipe=2", 2);
    // No stage without a block: one message more or less is much of a norm.
    add("GPipe",
        "--nproc_per_node=4 --pipe=4 --schedule=gpipe --dtype=bf16 "
        "--balance=uniform",
        4);
    add("ZeroBubble", "--nproc_per_node=2 --pipe=2 --schedule=zb_h1", 2);
    add("Interleaved",
        "--nproc_per_node=2 --pipe=2 --schedule=interleaved_1f1b", 2);
    add("Tensor", "--nproc_per_node=2 --tensor=2", 1, 2);
    add("TensorOfWholeTokens",
        "--nproc_per_node=4 --tensor=2 --nosequence_parallel "
        "--shard=optimizer --dtype=bf16",
        1, 2);
    add("ParametersSharedAndTensor",
        "--nproc_per_node=4 --tensor=2 --shard=parameters", 1, 2);
    add("PipelineAndTensor",
        "--nproc_per_node=4 --pipe=2 --tensor=2 --checkpoint_every=1", 2, 2);
    add("PipelineOfParametersShared",
        "--nproc_per_node=4 --pipe=2 --shard=parameters", 2);
    add("ParametersSharedAsCopies",
        "--nproc_per_node=2 --shard=parameters --dtype=bf16");
    add("PipelineOfStagesGathered",
        "--nproc_per_node=4 --pipe=2 --shard=parameters "
        "--noreshard_after_forward --dtype=bf16",
        2);
    add("DevicesOfRanks",
        "--nproc_per_node=2 --devices_per_rank=2 --strategy=hybrid "
        "--shard=optimizer --clip_grad_norm=1");
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, DryRunMemoryTest, testing::ValuesIn(Layouts()),
                         RowName<Layout>);

// What a device held, of "25.2 MiB: optimizer 12.5 MiB, gradients 6.2 MiB".
int64_t StateOf(const std::string& peak) {
  int64_t state = 0;
  const std::regex part("(parameters|gradients|optimizer) ([0-9.]+ [A-Za-z]+)");
  for (auto it = std::sregex_iterator(peak.begin(), peak.end(), part);
       it != std::sregex_iterator(); ++it) {
    state += ParseByteSize((*it)[2].str()).value_or(0);
  }
  return state;
}

class PartitionStateTest : public testing::TestWithParam<Layout> {};

// There are 64 blocks, so that one tensor's gradient on its way is little.
TEST_P(PartitionStateTest, IsWhatDevicesHold) {
  const Layout& layout = GetParam();
  ProgramResult run;
  const Events events = RunJobForEvents(
      Words("--model=gpt_baby --layers=64 --width=64 --heads=4 --context=8 "
            "--dataset=synthetic_tokens --synthetic_samples=16 --batch_size=8 "
            "--microbatch_size=2 --max_steps=1 --optimizer=adamw --device=sim "
            "--intra_op_threads=1 --save_dir= --balance=profile " +
            layout.flags),
      &run);
  ASSERT_FALSE(events.empty());
  const std::vector<int64_t> states =
      ColumnOf(run.out, "stage", "[0-9]+", "state");
  const std::vector<int64_t> device_of =
      ColumnOf(run.out, "stage", "[0-9]+", "device");
  ASSERT_EQ(states.size(), device_of.size()) << run.out;
  std::vector<int64_t> counted(static_cast<size_t>(layout.pipe));
  for (size_t stage = 0; stage < states.size(); ++stage) {
    counted.at(static_cast<size_t>(device_of[stage])) += states[stage];
  }
  const nlohmann::json held = events.back()["device_memory"];
  for (size_t i = 0; i < counted.size(); ++i) {
    // In a mesh the ranks that share a layer are neighbours.
    const std::string device =
        "sim:" + std::to_string(i * static_cast<size_t>(layout.tensor));
    ASSERT_TRUE(held.contains(device)) << held;
    const int64_t state = StateOf(held[device]);
    ASSERT_GT(state, 0) << held;
    const double ratio =
        static_cast<double>(counted[i]) / static_cast<double>(state);
    std::printf("%s, %s: %s counted, %s held, %+.2f %%\n", layout.name.c_str(),
                device.c_str(), FormatBytes(counted[i]).c_str(),
                FormatBytes(state).c_str(), 100 * (ratio - 1));
    EXPECT_NEAR(ratio, 1, 0.03) << run.out << held;
  }
  std::printf("%zu cells compared\n", counted.size());
}

std::vector<Layout> Partitions() {
  const std::string two = "--nproc_per_node=2 --pipe=2 ";
  const std::string four = "--nproc_per_node=4 --pipe=2 ";
  const std::string by_layers = "--shard=parameters --shard_min_num_params=1 ";
  return {
      {"Pipeline", two, 2},
      {"Interleaved", two + "--schedule=interleaved_1f1b", 2},
      {"InBf16", two + "--dtype=bf16", 2},
      {"OptimizerShared", four + "--shard=optimizer", 2},
      {"GradientsShared", four + "--shard=gradients", 2},
      // In two units a stage, which are both there.
      {"ParametersShared", four + "--shard=parameters", 2},
      {"ParametersSharedByLayers", four + by_layers, 2},
      {"ParametersSharedAsCopies", four + by_layers + "--dtype=bf16", 2},
      {"StagesGathered", four + "--shard=parameters --noreshard_after_forward",
       2},
      {"AdaptersShared", four + by_layers + "--lora_rank=2", 2},
      {"Tensor", four + "--tensor=2", 2, 2},
      {"TensorOfWholeTokens",
       four + "--tensor=2 --nosequence_parallel --dtype=bf16", 2, 2},
      {"TensorAndParametersShared",
       "--nproc_per_node=8 --pipe=2 --tensor=2 " + by_layers, 2, 2},
      {"DevicesOfRanks",
       "--nproc_per_node=2 --devices_per_rank=2 --strategy=hybrid "
       "--shard=optimizer",
       2},
  };
}

INSTANTIATE_TEST_SUITE_P(All, PartitionStateTest,
                         testing::ValuesIn(Partitions()), RowName<Layout>);

}  // namespace
}  // namespace tandem
