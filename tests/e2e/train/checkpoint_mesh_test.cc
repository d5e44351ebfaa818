// A checkpoint of any mesh goes on in any mesh, with the bits of a job that was
// never stopped.

#include <filesystem>
#include <iostream>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "tests/e2e/train/pipeline_runs.h"

namespace tandem {
namespace {

using Meshes = std::map<std::string, Flags>;

const Meshes& AllMeshes() {
  static const auto* const meshes = new Meshes{
      {"OneDevice", {}},
      {"Data2", {"--nproc_per_node=2", "--shard_optimizer=off"}},
      {"Data3Sharded", {"--nproc_per_node=3", "--shard_optimizer=on"}},
      {"Pipe2", {"--nproc_per_node=2", "--pipe=2"}},
      {"Data2Pipe2Sharded",
       {"--nproc_per_node=4", "--pipe=2", "--shard_optimizer=on"}}};
  return *meshes;
}

class CheckpointMeshTest : public testing::TestWithParam<Meshes::value_type> {};

// Two epochs of four steps: step 3 is in the middle of one.
TEST_P(CheckpointMeshTest, AnyMeshGoesOnFromIt) {
  const auto& [from, saving] = GetParam();
  const Flags job =
      TinyJob("mlp_dropout",
              {"--reproducible", "--batch_size=12", "--microbatch_size=2",
               "--synthetic_samples=48", "--epochs=2", "--optimizer=adamw"});
  const std::string straight = Fingerprint(EventsOfJob(job));
  const std::string folder = NewFolder("mesh");
  RunJobForEvents(
      Joined(Joined(job, saving), {"--max_steps=3", "--save_dir=" + folder}));
  int cells = 0;
  for (const auto& [to, layout] : AllMeshes()) {
    const Events events =
        RunJobForEvents(Joined(Joined(job, layout), {"--resume=" + folder}));
    EXPECT_EQ(EventsOf(events, "step").front()["step"], 4);
    EXPECT_EQ(Fingerprint(events), straight) << from << " to " << to;
    std::cout << "cell: from " << from << " to " << to << "\n";
    ++cells;
  }
  EXPECT_EQ(cells, 5);
  std::cout << cells << " cells\n";
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointMeshTest,
                         testing::ValuesIn(AllMeshes()),
                         [](const auto& info) { return info.param.first; });

}  // namespace
}  // namespace tandem
