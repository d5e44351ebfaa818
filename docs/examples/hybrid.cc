// Replicas of a model that is cut into stages, over ranks and their devices:
//   bazel run //docs/examples:hybrid -- --nproc_per_node=4 --pipe=2
// --pipe=1 is data parallel, --pipe of all ranks one pipeline.
#include <cstdio>
#include <memory>
#include <string>

#include "absl/flags/flag.h"
#include "core/base/status_macros.h"
#include "core/mesh/mesh.h"
#include "core/run/run_program.h"
#include "datasets/loader.h"
#include "datasets/synthetic.h"
#include "models/classification_loss.h"
#include "models/mlp.h"
#include "parallel/balance/cut.h"
#include "parallel/mesh_strategy.h"
#include "parallel/schedule/schedules.h"

ABSL_FLAG(int, pipe, 2, "Ranks that share one replica of the model.");
ABSL_FLAG(std::string, schedule, "1f1b", "gpipe, 1f1b or zb_h1.");

absl::Status Train(tandem::Rank& rank) {
  const int pipe = absl::GetFlag(FLAGS_pipe);
  TANDEM_ASSIGN_OR_RETURN(const auto mesh,
                          tandem::Mesh::Create(rank.size(), {.pipe = pipe}));
  TANDEM_ASSIGN_OR_RETURN(std::shared_ptr<const tandem::Dataset> data,
                          tandem::MakeSyntheticImages({{1, 28, 28}}));
  const int replica = mesh.ReplicaIndex(rank.rank());
  TANDEM_ASSIGN_OR_RETURN(std::shared_ptr<tandem::DistributedSampler> sampler,
                          tandem::DistributedSampler::Create(
                              data->size(), {mesh.replicas(), replica}));
  TANDEM_ASSIGN_OR_RETURN(auto loader,
                          tandem::Loader::Create(data, sampler, {32, true}));

  const auto layers = tandem::Mlp({784, 3, 64, data->classes()});
  tandem::MeshStrategyOptions options;
  TANDEM_ASSIGN_OR_RETURN(  // of `pipe` devices, 1 chunk, 4 microbatches
      options.schedule,
      tandem::MakeSchedule(absl::GetFlag(FLAGS_schedule), {pipe, 1, 4}));
  TANDEM_ASSIGN_OR_RETURN(options.cuts,
                          tandem::UniformCuts(layers.size(), pipe));
  TANDEM_ASSIGN_OR_RETURN(
      auto strategy, tandem::MeshStrategy::Create(layers, tandem::CrossEntropy,
                                                  options, &rank.world));
  loader->StartEpoch(0);
  for (int step = 1;; ++step) {
    TANDEM_ASSIGN_OR_RETURN(const auto batch, loader->Next());
    if (!batch.has_value()) return absl::OkStatus();
    TANDEM_ASSIGN_OR_RETURN(const auto score,
                            strategy->TrainStep(*batch, 0.05));
    if (rank.rank() != 0 || step % 40 != 0) continue;
    std::printf("step %d: loss %.6f\n", step, score.loss());
  }
}

int main(int argc, char** argv) {
  return tandem::RunProgram(argc, argv, {"hybrid", "Trains in stages."}, Train);
}
