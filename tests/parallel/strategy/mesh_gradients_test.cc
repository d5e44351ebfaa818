// Losses and gradients of every mesh of 2, 4, 6 and 8 ranks, each way to share
// parameters among replicas, and each divided transformer, with even and uneven
// batches: one device's.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/loss/loss.h"
#include "core/model/batch.h"
#include "core/model/layer.h"
#include "models/classification_loss.h"
#include "parallel/optim/optimizer_options.h"
#include "parallel/step/mesh_strategy_options.h"
#include "tests/models/transformer/tensor_parallel_problems.h"
#include "tests/parallel/matrix/matrix_problem.h"
#include "tests/parallel/strategy/lab_gradients.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::mesh_gradients_test {
namespace {

// In parts of a gradient's norm, and of the loss: units in the last place of a
// float, which sums in another order come to. On one processor 9 and 1 were
// the most.
constexpr double kGradientRounding = 32 * 0x1p-23;
constexpr double kLossRounding = 8 * 0x1p-23;

constexpr int64_t kTokens = 24;  // all degrees divide them
constexpr int64_t kEvenBatch = 24;
constexpr int64_t kUnevenBatch = 7;
constexpr int kMicrobatches = 3;  // of a replica

struct Model {
  std::string name;
  LayerSpecs specs;
  std::vector<int> tensor_degrees;
  bool of_images = false;
};

LayerSpecs GptOf(int64_t heads, bool tied) {
  GptOptions options = SmallGpt();
  options.layers = 4;
  options.heads = heads;
  options.ties_lm_head = tied;
  return *Gpt(options);
}

LayerSpecs LlamaOf(int64_t kv_heads) {
  LlamaOptions options = SmallLlama(kv_heads);
  options.layers = 4;
  return *Llama(options);
}

// Heads of which a rank has an odd number, one, or, with grouped queries, less
// than one of keys.
const std::vector<Model>& Models() {
  static const auto* const models = new std::vector<Model>{
      {"GptOf6Heads", GptOf(6, /*tied=*/false), {1, 2, 3, 6}},
      {"TiedGptOf8Heads", GptOf(8, /*tied=*/true), {1, 2, 4, 8}},
      {"LlamaOf3KeyHeads", LlamaOf(3), {1, 3, 6}},
      {"LlamaOf4KeyHeads", LlamaOf(4), {2, 4}},
      {"Vit", *Vit(SmallVit()), {1, 2, 3, 4, 6}, /*of_images=*/true}};
  return *models;
}

struct Mesh {
  int data = 1;
  int pipe = 1;
  int tensor = 1;
  Sharding shard = Sharding::kOff;
  int data_shard = 0;
  bool sequence_parallel = true;

  int ranks() const { return data * pipe * tensor; }
};

std::string NameOf(const Mesh& mesh) {
  std::string name;
  const std::pair<const char*, int> axes[] = {
      {"Data", mesh.data}, {"Pipe", mesh.pipe}, {"Tensor", mesh.tensor}};
  for (const auto& [axis, degree] : axes) {
    if (degree > 1) absl::StrAppend(&name, axis, degree);
  }
  if (mesh.shard == Sharding::kOptimizer) name += "_Optimizer";
  if (mesh.shard == Sharding::kGradients) name += "_Gradients";
  if (mesh.shard == Sharding::kParameters) name += "_Parameters";
  if (mesh.data_shard > 0) absl::StrAppend(&name, "Of", mesh.data_shard);
  if (!mesh.sequence_parallel) name += "_WholeTokens";
  return name;
}

// What replicas share, and in groups of how many.
std::vector<std::pair<Sharding, int>> WaysToShare(int replicas) {
  std::vector<std::pair<Sharding, int>> ways = {{Sharding::kOff, 0}};
  if (replicas == 1) return ways;
  ways.emplace_back(Sharding::kOptimizer, 0);
  for (const Sharding shard : {Sharding::kGradients, Sharding::kParameters}) {
    ways.emplace_back(shard, 0);
    for (int group = 2; group < replicas; ++group) {
      if (replicas % group == 0) ways.emplace_back(shard, group);
    }
  }
  return ways;
}

// Each product of data, pipe and tensor.
std::vector<Mesh> Meshes() {
  std::vector<Mesh> meshes;
  for (const int ranks : {2, 4, 6, 8}) {
    for (int data = 1; data <= ranks; ++data) {
      for (int pipe = 1; data * pipe <= ranks; ++pipe) {
        if (ranks % (data * pipe) != 0) continue;
        const int tensor = ranks / (data * pipe);
        for (const auto& [shard, group] : WaysToShare(data)) {
          meshes.push_back({data, pipe, tensor, shard, group});
          if (tensor == 1) continue;
          meshes.push_back(meshes.back());
          meshes.back().sequence_parallel = false;
        }
      }
    }
  }
  return meshes;
}

bool Fits(const Model& model, const Mesh& mesh) {
  return testing::Value(model.tensor_degrees, testing::Contains(mesh.tensor)) &&
         mesh.pipe <= static_cast<int>(model.specs.size());
}

struct Cell {
  const Model* model;
  Mesh mesh;
  bool uneven = false;
};

std::vector<Cell> Cells() {
  std::vector<Cell> cells;
  for (const Model& model : Models()) {
    for (const Mesh& mesh : Meshes()) {
      if (!Fits(model, mesh)) continue;
      cells.push_back({&model, mesh});
      if (mesh.data > 1) cells.push_back({&model, mesh, /*uneven=*/true});
    }
  }
  return cells;
}

std::string NameOf(const Cell& cell) {
  return absl::StrCat(cell.model->name, "_", NameOf(cell.mesh),
                      cell.uneven ? "_Uneven" : "");
}

// How many of the samples each replica has: uneven, from none to four.
std::vector<int64_t> Shares(int replicas, bool uneven) {
  if (!uneven) {
    return std::vector<int64_t>(static_cast<size_t>(replicas),
                                kEvenBatch / replicas);
  }
  std::vector<int64_t> shares(static_cast<size_t>(replicas), 0);
  for (int i = 0; i < kUnevenBatch; ++i) {
    ++shares[static_cast<size_t>(i * i % replicas)];
  }
  return shares;
}

Batch WholeBatch(const Model& model, bool uneven) {
  const int64_t size = uneven ? kUnevenBatch : kEvenBatch;
  const VitOptions vit = SmallVit();
  return model.of_images
             ? RandomBatch({{vit.in_channels, vit.image_size, vit.image_size},
                            vit.classes},
                           size, /*seed=*/3, /*number=*/0)
             : RandomBatch({{kTokens}, kVocabulary, /*tokens=*/true}, size,
                           /*seed=*/3, /*number=*/0);
}

Batch ShareOf(const Batch& whole, const std::vector<int64_t>& shares,
              int replica) {
  const int64_t size = shares[static_cast<size_t>(replica)];
  if (size == 0) return Batch();
  const int64_t first =
      std::accumulate(shares.begin(), shares.begin() + replica, int64_t{0});
  return {whole.inputs.narrow(0, first, size),
          whole.targets.narrow(0, first, size), size};
}

absl::StatusOr<LabGradients> GradientsOf(
    const Cell& cell,
    UnevenDivision uneven_division = UnevenDivision::kSamples) {
  const Mesh& mesh = cell.mesh;
  // Gradients of weights by themselves, too.
  LabLayout layout = LabLayoutNamed(
      absl::StrCat(cell.uneven ? "zb_h1 " : "1f1b ", mesh.data, "x", mesh.pipe),
      kMicrobatches * mesh.data);
  layout.tensor = mesh.tensor;
  LabJob job;
  job.specs = [&] { return cell.model->specs; };
  job.loss = cell.model->of_images ? LossFunction(CrossEntropy) : TokenLoss();
  job.change = [&](MeshStrategyOptions& options) {
    options.shard = mesh.shard;
    options.data_shard = mesh.data_shard;
    options.shard_min_num_params = 1;
    options.sequence_parallel = mesh.sequence_parallel;
    options.uneven_batches = cell.uneven;
    options.uneven_division = uneven_division;
    options.ddp.bucket_cap_mb = 4.0 / 1024;  // several buckets
  };
  job.share = [whole = WholeBatch(*cell.model, cell.uneven),
               shares = Shares(mesh.data, cell.uneven)](int, int replica) {
    return ShareOf(whole, shares, replica);
  };
  return GradientsInLab(layout, job);
}

// One device's.
const absl::StatusOr<LabGradients>& Expected(const Cell& cell) {
  static absl::Mutex mutex;
  static auto* const known =
      new std::map<std::pair<std::string, bool>, absl::StatusOr<LabGradients>>;
  const absl::MutexLock lock(&mutex);
  const auto key = std::make_pair(cell.model->name, cell.uneven);
  const auto found = known->find(key);
  if (found != known->end()) return found->second;
  return known->emplace(key, GradientsOf({cell.model, Mesh(), cell.uneven}))
      .first->second;
}

class MeshGradientsTest : public testing::TestWithParam<Cell> {};

TEST_P(MeshGradientsTest, AreOneDevices) {
  const auto& expected = Expected(GetParam());
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto found = GradientsOf(GetParam());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->score.count, expected->score.count);
  EXPECT_NEAR(found->score.loss(), expected->score.loss(),
              kLossRounding * expected->score.loss());
  for (const auto& [name, distance] :
       GradientDistances(found->gradients, expected->gradients)) {
    EXPECT_LE(distance, kGradientRounding) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, MeshGradientsTest, testing::ValuesIn(Cells()),
                         [](const auto& info) { return NameOf(info.param); });

TEST(MeshGradientsCellsTest, NoneIsMissing) {
  std::map<int, int> meshes;
  for (const Mesh& mesh : Meshes()) ++meshes[mesh.ranks()];
  std::map<std::string, int> cells;
  for (const Cell& cell : Cells()) ++cells[cell.model->name];
  for (const auto& [ranks, count] : meshes) {
    std::cout << count << " meshes of " << ranks << " ranks\n";
  }
  for (const auto& [model, count] : cells) {
    std::cout << count << " cells of " << model << "\n";
  }
  EXPECT_EQ(meshes, (std::map<int, int>{{2, 7}, {4, 23}, {6, 39}, {8, 53}}));
  EXPECT_EQ(cells, (std::map<std::string, int>{{"GptOf6Heads", 200},
                                               {"LlamaOf3KeyHeads", 119},
                                               {"LlamaOf4KeyHeads", 100},
                                               {"TiedGptOf8Heads", 202},
                                               {"Vit", 219}}));
}

// Replicas that weigh alike although one has four samples and one three: each
// parameter's gradient is far beyond what roundings come to.
TEST(MeshGradientsMistakeTest, IsFarBeyondRounding) {
  for (const Model& model : Models()) {
    const int tensor = model.tensor_degrees.front();
    const Cell cell = {&model, {2, 1, tensor}, /*uneven=*/true};
    SCOPED_TRACE(NameOf(cell));
    const auto found = GradientsOf(cell, UnevenDivision::kPresentReplicas);
    ASSERT_TRUE(found.ok()) << found.status();
    for (const auto& [name, distance] :
         GradientDistances(found->gradients, Expected(cell)->gradients)) {
      EXPECT_GE(distance, 100 * kGradientRounding) << name;
    }
  }
}

}  // namespace
}  // namespace tandem::mesh_gradients_test
