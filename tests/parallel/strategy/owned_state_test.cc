// Parameters that are sharded along an axis of a mesh, with an optimizer that
// replicas may share: written by their owners, joined on rank 0, and gone on
// from on any other mesh.

#include "parallel/strategy/owned_state.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/save.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/comm/communicator.h"
#include "core/mesh/mesh.h"
#include "core/model/parameter_shard.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "parallel/ddp/model_state.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/sharding/optimizer_sharding.h"
#include "parallel/strategy/gathered_tensors.h"
#include "tests/core/testing/test_files.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::owned_state_test {
namespace {

constexpr char kTensorAxis[] = "tensor";

struct Weight {
  const char* name;
  std::vector<int64_t> sizes;
  std::optional<ParameterShard> shard;
};

// What parts of a transformer have. In order they lie on the pipeline's ranks
// in turn.
std::vector<Weight> Weights() {
  return {
      {"wte.weight", {12, 5}, ParameterShard{kTensorAxis, 0}},
      {"c_attn.weight", {5, 36}, ParameterShard{kTensorAxis, 1, 3}},
      {"c_attn.bias", {36}, ParameterShard{kTensorAxis, 0, 3}},
      {"c_proj.weight", {12, 5}, ParameterShard{kTensorAxis, 0}},
      {"ln.weight", {7}, std::nullopt},
      {"down_proj.weight", {5, 12}, ParameterShard{kTensorAxis, 1}},
  };
}

TraitsByName Traits() {
  TraitsByName traits;
  for (const Weight& each : Weights()) {
    traits[each.name].shard = each.shard;
  }
  return traits;
}

at::Tensor Formula(const Weight& weight, double factor, c10::ScalarType dtype) {
  int64_t elements = 1;
  for (const int64_t size : weight.sizes) elements *= size;
  return (at::arange(elements, at::kDouble) * factor)
      .sin()
      .to(dtype)
      .view(weight.sizes);
}

struct Layout {
  int data = 1;
  int pipe = 1;
  int tensor = 1;
  bool shares = false;  // replicas share the optimizer

  Mesh mesh() const {
    return *Mesh::Create(
        {{"data", data}, {"pipe", pipe}, {kTensorAxis, tensor}});
  }
  std::string name() const {
    return absl::StrCat(data, "x", pipe, "x", tensor, shares ? "shared" : "");
  }
};

// What one rank trains.
class Rank {
 public:
  static absl::StatusOr<std::unique_ptr<Rank>> Create(const Layout& layout,
                                                      c10::ScalarType dtype,
                                                      Communicator& world) {
    auto rank = std::make_unique<Rank>(layout, world);
    FlatBufferOptions flat;
    const std::vector<Weight> weights = Weights();
    for (size_t i = 0; i < weights.size(); ++i) {
      const auto pipe = static_cast<size_t>(layout.pipe);
      if (i % pipe != static_cast<size_t>(rank->Index(kPipeAxis))) continue;
      TANDEM_RETURN_IF_ERROR(rank->Add(weights[i], dtype));
      flat.traits.push_back(EffectiveTraits(Traits(), weights[i].name));
    }
    TANDEM_ASSIGN_OR_RETURN(
        rank->shards_,
        FindShards(rank->parameters_, Traits(), rank->mesh_, world.rank()));
    rank->flat_ = MakeFlatBuffers(rank->parameters_, flat);
    const OptimizerShare share =
        layout.shares ? OptimizerShare{rank->Index(kDataAxis), layout.data}
                      : OptimizerShare();
    TANDEM_ASSIGN_OR_RETURN(
        rank->optimizer_,
        MakeGroupedOptimizer({AdamWOptions()}, rank->flat_,
                             [share](const FlatBuffer&) { return share; }));
    TANDEM_ASSIGN_OR_RETURN(
        rank->replicas_,
        world.Subgroup(rank->mesh_.RanksAlong({kDataAxis}, world.rank()),
                       "replicas"));
    return rank;
  }
  Rank(const Layout& layout, Communicator& world)
      : layout_(layout), mesh_(layout.mesh()), world_(world) {}

  // One step, of gradients that no rank need be asked for.
  absl::Status Step() {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      (parameters_[i].second * gradients_[i]).sum().backward();
    }
    optimizer_->Step(0.1);
    if (!layout_.shares) return absl::OkStatus();
    return GatherValues(optimizer_->buffers(), *replicas_, /*step=*/1);
  }

  absl::Status Save(const std::string& path) const {
    TANDEM_ASSIGN_OR_RETURN(const NamedTensors state,
                            CheckpointTensors(Model(), optimizer_->State()));
    StatePart part = OwnedState(state, Place());
    const StatePart share = OwnedShare(
        optimizer_->SharedState(), SharedNames::kStates, {kDataAxis}, Place());
    part.tensors.insert(part.tensors.end(), share.tensors.begin(),
                        share.tensors.end());
    part.slices.insert(share.slices.begin(), share.slices.end());
    FolderSave save;
    save.path = path;
    save.rank = world_.rank();
    save.gather = [this](const std::string& mine) {
      return world_.AllGatherString(mine);
    };
    save.metadata = CheckpointMetadata(TrainingProgress());
    return SaveFolder(save, part).status();
  }

  // All of it, on rank 0.
  absl::StatusOr<TensorsByName> Gather() const {
    TANDEM_ASSIGN_OR_RETURN(
        const NamedTensors optimizer,
        optimizer_->GatherState(
            [this](const FlatBuffer& buffer, const at::Tensor& mine) {
              return GatherOnFirst(buffer, mine, *replicas_);
            }));
    TANDEM_ASSIGN_OR_RETURN(const NamedTensors state,
                            CheckpointTensors(Model(), optimizer));
    CollectedTensors all;
    TANDEM_RETURN_IF_ERROR(
        StreamToRank0(OwnedState(state, Place()), world_, all));
    return CopiesOf(all.tensors);
  }

  absl::Status Load(const std::string& path) {
    at::NoGradGuard no_grad;
    for (const auto& each : Model()) each.second.zero_();
    TANDEM_ASSIGN_OR_RETURN(const StoredCheckpoint stored,
                            OpenCheckpointAt(path));
    TANDEM_ASSIGN_OR_RETURN(
        const StoredTensors model,
        ShardsToLoad(Mine(stored.model, SameName), shards_, SameName));
    TANDEM_RETURN_IF_ERROR(CopyModelState(model, Model()));
    TANDEM_ASSIGN_OR_RETURN(const StoredTensors state,
                            ShardsToLoad(Mine(stored.optimizer, ParameterName),
                                         shards_, ParameterName));
    return optimizer_->LoadState(state);
  }

  // Whether each tensor of the model here is what `whole` has for this rank.
  void ExpectPartsOf(const TensorsByName& whole) const {
    for (const auto& [name, tensor] : Model()) {
      const auto shard = shards_.find(name);
      at::Tensor expected = whole.at(name);
      if (shard != shards_.end()) {
        expected = SelectShard(expected, shard->second.shard);
      }
      EXPECT_TRUE(tensor.equal(expected)) << layout_.name() << " " << name;
    }
  }

 private:
  static std::string SameName(const std::string& name) { return name; }

  int Index(absl::string_view axis) const {
    return mesh_.IndexAlong(axis, world_.rank());
  }
  OwnerPlace Place() const { return {mesh_, world_.rank(), shards_}; }

  absl::Status Add(const Weight& weight, c10::ScalarType dtype) {
    at::Tensor value = Formula(weight, 0.37, dtype);
    at::Tensor gradient = Formula(weight, 0.53, dtype);
    if (weight.shard.has_value()) {
      TANDEM_ASSIGN_OR_RETURN(
          const TensorShard shard,
          RankShard(weight.name, weight.sizes, *weight.shard, layout_.tensor,
                    Index(kTensorAxis)));
      value = SelectShard(value, shard);
      gradient = SelectShard(gradient, shard);
    }
    parameters_.emplace_back(weight.name,
                             value.contiguous().clone().requires_grad_(true));
    gradients_.push_back(gradient);
    return absl::OkStatus();
  }

  // Parameters and, on the pipeline's first ranks, a buffer.
  NamedTensors Model() const {
    NamedTensors model = parameters_;
    if (Index(kPipeAxis) == 0) model.emplace_back("bn.running_mean", buffer_);
    return model;
  }

  StoredTensors Mine(
      const StoredTensors& state,
      const std::function<std::string(const std::string&)>& owner) const {
    std::map<std::string, at::Tensor> own;
    for (const auto& [name, tensor] : Model()) own[name] = tensor;
    StoredTensors mine;
    for (const StoredTensor& each : state) {
      if (own.count(owner(each.info.name)) > 0) mine.Add(each);
    }
    return mine;
  }

  const Layout layout_;
  const Mesh mesh_;
  Communicator& world_;
  NamedTensors parameters_;
  std::vector<at::Tensor> gradients_;
  const at::Tensor buffer_ = at::full({3}, 0.25);
  ShardsByName shards_;
  FlatBuffers flat_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Communicator> replicas_;
};

absl::StatusOr<TensorsByName> ReadAll(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const StoredCheckpoint stored,
                          OpenCheckpointAt(path));
  TensorsByName all;
  for (const StoredTensor& each : stored.model) {
    TANDEM_ASSIGN_OR_RETURN(all[each.info.name], each.read());
  }
  for (const StoredTensor& each : stored.optimizer) {
    TANDEM_ASSIGN_OR_RETURN(all[CheckpointNameOfState(each.info.name)],
                            each.read());
  }
  return all;
}

// Trains a step on the layout's ranks, and saves to `path`; what rank 0
// gathers.
absl::StatusOr<TensorsByName> TrainAndSave(const Layout& layout,
                                           c10::ScalarType dtype,
                                           const std::string& path) {
  TensorsByName gathered;
  TANDEM_RETURN_IF_ERROR(RunThreadRanks(
      layout.mesh().world_size(), [&](Communicator& world) -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(const auto rank,
                                Rank::Create(layout, dtype, world));
        TANDEM_RETURN_IF_ERROR(rank->Step());
        TANDEM_RETURN_IF_ERROR(rank->Save(path));
        TANDEM_ASSIGN_OR_RETURN(TensorsByName all, rank->Gather());
        if (world.rank() == 0) gathered = std::move(all);
        return absl::OkStatus();
      }));
  return gathered;
}

class OwnedStateTest : public testing::TestWithParam<c10::ScalarType> {};

TEST_P(OwnedStateTest, AnyMeshGoesOnFromAnyOthersCheckpoint) {
  const c10::ScalarType dtype = GetParam();
  const std::string folder =
      NewTestFolder(absl::StrCat("owned", c10::toString(dtype)));
  const auto reference = TrainAndSave({}, dtype, folder + "/reference");
  ASSERT_TRUE(reference.ok()) << reference.status();
  // Each weight with two states and a number of steps, and the buffer.
  ASSERT_EQ(reference->size(), 4 * Weights().size() + 1);
  std::vector<std::string> saved;
  for (const Layout& layout : std::vector<Layout>{{1, 1, 1},
                                                  {2, 1, 2, true},
                                                  {1, 2, 3},
                                                  {1, 1, 4},
                                                  {2, 2, 2},
                                                  {3, 1, 2, true}}) {
    SCOPED_TRACE(layout.name());
    saved.push_back(absl::StrCat(folder, "/", layout.name()));
    const auto gathered = TrainAndSave(layout, dtype, saved.back());
    ASSERT_TRUE(gathered.ok()) << gathered.status();
    ExpectSameBits(*gathered, *reference);
    const auto read = ReadAll(saved.back());
    ASSERT_TRUE(read.ok()) << read.status();
    ExpectSameBits(*read, *reference);
  }
  for (const Layout& layout :
       std::vector<Layout>{{1, 1, 1}, {2, 2, 2}, {2, 1, 3, true}, {1, 1, 6}}) {
    SCOPED_TRACE(layout.name());
    ExpectOk(RunThreadRanks(
        layout.mesh().world_size(), [&](Communicator& world) -> absl::Status {
          TANDEM_ASSIGN_OR_RETURN(const auto rank,
                                  Rank::Create(layout, dtype, world));
          for (const std::string& path : saved) {
            TANDEM_RETURN_IF_ERROR(rank->Load(path));
            rank->ExpectPartsOf(*reference);
            TANDEM_ASSIGN_OR_RETURN(const TensorsByName all, rank->Gather());
            if (world.rank() == 0) ExpectSameBits(all, *reference);
          }
          return absl::OkStatus();
        }));
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, OwnedStateTest,
                         testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param));
                         });

}  // namespace
}  // namespace tandem::owned_state_test
