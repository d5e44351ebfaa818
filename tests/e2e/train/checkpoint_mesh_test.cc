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

const std::map<std::string, Flags>& Meshes() {
  static const auto* const meshes = new std::map<std::string, Flags>{
      {"1 device", {}},
      {"data 2", {"--nproc_per_node=2", "--shard_optimizer=off"}},
      {"data 3, sharded", {"--nproc_per_node=3", "--shard_optimizer=on"}},
      {"pipe 2", {"--nproc_per_node=2", "--pipe=2"}},
      {"data 2 x pipe 2, sharded",
       {"--nproc_per_node=4", "--pipe=2", "--shard_optimizer=on"}}};
  return *meshes;
}

// Two epochs of four steps: step 3 is in the middle of one.
TEST(CheckpointMeshTest, AnyMeshGoesOnFromAny) {
  const Flags job =
      TinyJob("mlp_dropout",
              {"--reproducible", "--batch_size=12", "--microbatch_size=2",
               "--synthetic_samples=48", "--epochs=2", "--optimizer=adamw"});
  const std::string straight = Fingerprint(RunJobForEvents(job));
  int cells = 0;
  for (const auto& [from, saving] : Meshes()) {
    const std::string folder = NewFolder("mesh");
    RunJobForEvents(
        Joined(Joined(job, saving), {"--max_steps=3", "--save_dir=" + folder}));
    for (const auto& [to, layout] : Meshes()) {
      const Events events =
          RunJobForEvents(Joined(Joined(job, layout), {"--resume=" + folder}));
      EXPECT_EQ(EventsOf(events, "step").front()["step"], 4);
      EXPECT_EQ(Fingerprint(events), straight) << from << " to " << to;
      std::cout << "cell: from " << from << " to " << to << "\n";
      ++cells;
    }
  }
  EXPECT_EQ(cells, 25);
  std::cout << cells << " cells\n";
}

}  // namespace
}  // namespace tandem
