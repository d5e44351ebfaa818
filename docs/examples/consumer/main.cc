// A program of another workspace that uses tandem as a library: two ranks on
// this machine train one model, each on its own share of the samples.

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/mesh/mesh.h"
#include "core/model/batch.h"
#include "core/model/layer_list.h"
#include "core/process/spawn.h"
#include "core/store/store.h"
#include "datasets/dataset.h"
#include "datasets/distributed_sampler.h"
#include "datasets/synthetic.h"
#include "models/classification_loss.h"
#include "models/mlp.h"
#include "parallel/strategy/replicated.h"

namespace {

constexpr int kRanks = 2;
constexpr int64_t kBatchPerRank = 32;
constexpr uint64_t kSeed = 1;

absl::StatusOr<std::unique_ptr<tandem::Communicator>> Connect(
    const std::string& store_path, int rank) {
  tandem::CommunicatorOptions options;
  options.timeout = absl::ToChronoMilliseconds(absl::Seconds(60));
  TANDEM_ASSIGN_OR_RETURN(
      tandem::StorePtr store,
      tandem::OpenFileStore(store_path, rank, kRanks, /*key_prefix=*/"",
                            options.timeout));
  return tandem::Communicator::Create(store, rank, kRanks, "world", options);
}

absl::StatusOr<std::unique_ptr<tandem::DistributedSampler>> Sampler(
    int64_t length, const tandem::Mesh& mesh, int rank) {
  tandem::DistributedSamplerOptions options;
  options.num_replicas = mesh.replicas();
  options.rank = mesh.ReplicaIndex(rank);
  options.drop_last = true;
  return tandem::DistributedSampler::Create(length, options);
}

// One epoch; the score is that of all ranks.
absl::StatusOr<tandem::Score> TrainEpoch(tandem::Strategy& strategy,
                                         const tandem::Dataset& data,
                                         const std::vector<int64_t>& indices) {
  tandem::Score score;
  auto left = absl::MakeConstSpan(indices);
  while (!left.empty()) {
    TANDEM_ASSIGN_OR_RETURN(tandem::Batch batch,
                            data.Get(left.subspan(0, kBatchPerRank)));
    left.remove_prefix(batch.size);
    TANDEM_ASSIGN_OR_RETURN(tandem::Score step,
                            strategy.TrainStep(batch, /*learning_rate=*/0.05));
    score += step;
  }
  return score;
}

// What each rank does.
absl::Status Train(const std::string& store_path, int rank) {
  TANDEM_ASSIGN_OR_RETURN(tandem::Mesh mesh, tandem::Mesh::Create(kRanks, {}));
  TANDEM_ASSIGN_OR_RETURN(auto communicator, Connect(store_path, rank));
  tandem::SyntheticImagesOptions images;
  images.shape = {1, 28, 28};
  images.length = 2048;
  TANDEM_ASSIGN_OR_RETURN(auto data, tandem::MakeSyntheticImages(images));
  TANDEM_ASSIGN_OR_RETURN(auto sampler, Sampler(data->size(), mesh, rank));
  tandem::LayerList model =
      tandem::MakeLayers(tandem::Mlp({784, 3, 64, data->classes()}), kSeed);
  TANDEM_ASSIGN_OR_RETURN(
      auto strategy,
      tandem::MakeReplicated(model, tandem::CrossEntropy,
                             tandem::ReplicatedOptions(), *communicator));
  for (int epoch = 0; epoch < 3; ++epoch) {
    sampler->set_epoch(epoch);
    TANDEM_ASSIGN_OR_RETURN(tandem::Score score,
                            TrainEpoch(*strategy, *data, sampler->Indices()));
    if (rank == 0) {
      std::cout << strategy->name() << " on " << mesh.ToString() << ", epoch "
                << epoch << ": loss " << score.loss() << ", accuracy "
                << score.accuracy() << "\n";
    }
  }
  return absl::OkStatus();
}

}  // namespace

int main() {
  std::string folder = "/tmp/consumer.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::cerr << "no temporary folder\n";
    return 1;
  }
  absl::Status status = tandem::Spawn(
      [&](int rank) { return Train(folder + "/store", rank); }, kRanks);
  // Empty by now: the last rank removes the store.
  rmdir(folder.c_str());
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
