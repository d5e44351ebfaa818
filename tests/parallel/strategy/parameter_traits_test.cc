// What a layer says of its parameters reaches their training, in DDP and in the
// hybrid alike.

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/layer.h"
#include "core/model/layer_list.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/pipeline/model.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_checks.h"
#include "parallel/strategy/replicated.h"
#include "parallel/strategy/stage/tied_gradients.h"
#include "tests/parallel/matrix/matrix_problem.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::parameter_traits_test {
namespace {

using testing::HasSubstr;

constexpr char kParameter[] = "fc1.weight";

LayerSpecs Specs(const ParameterTraits& traits) {
  LayerSpecs specs = LabSpecs("mlp_small");
  for (LayerSpec& spec : specs) {
    if (absl::StrCat(spec.name, ".weight") == kParameter) {
      spec.traits["weight"] = traits;
    }
  }
  return specs;
}

Batch BatchOf(int replica) {
  return RandomBatch({{6}, 5}, /*size=*/8, /*seed=*/3, replica);
}

// One step of two replicas, each on its own batch: of DDP, or of hybrids, whose
// two stages are on two devices of each rank. `alike`, if not null: what they
// have alike.
absl::StatusOr<LabOutcome> Train(bool hybrid, const LayerSpecs& specs,
                                 const UpdateOptions& update,
                                 TensorsByName* alike = nullptr) {
  LabLayout layout = {"", "1f1b", 2, 1, hybrid ? 2 : 1};
  layout.microbatches = 4;
  LabJob job;
  job.specs = [&] { return specs; };
  job.loss = CrossEntropy;
  job.change = [&](MeshStrategyOptions& options) {
    static_cast<UpdateOptions&>(options) = update;
    options.seed = 7;
  };
  if (!hybrid) {
    job.make = [&](Communicator* world) {
      ReplicatedOptions options;
      static_cast<UpdateOptions&>(options) = update;
      return MakeReplicated(MakeLayers(specs, 7), CrossEntropy, options,
                            *world);
    };
  }
  job.share = [](int, int replica) { return BatchOf(replica); };
  job.steps = 1;
  job.end = [alike](const LabRank& rank) {
    if (alike != nullptr && rank.rank == 0) {
      *alike = CopiesOf(rank.strategy->AlikeParameters());
    }
    return absl::OkStatus();
  };
  return TrainInLab(layout, job);
}

class ParameterTraitsTrainingTest : public testing::TestWithParam<bool> {};

TEST_P(ParameterTraitsTrainingTest, WithoutDataEachReplicaTrainsItsOwn) {
  ParameterTraits own;
  own.reduce_axes.clear();
  const auto all = Train(GetParam(), Specs({}), {});
  ASSERT_TRUE(all.ok()) << all.status();
  TensorsByName alike;
  const auto some = Train(GetParam(), Specs(own), {}, &alike);
  ASSERT_TRUE(some.ok()) << some.status();
  ASSERT_EQ(some->held[0].count(kParameter), 1u);
  // The model has no buffers.
  EXPECT_EQ(alike.size(), some->held[0].size() - 1);
  EXPECT_EQ(alike.count(kParameter), 0u);
  for (const auto& [name, tensor] : some->held[0]) {
    EXPECT_TRUE(all->held[0].at(name).equal(all->held[1].at(name)));
    EXPECT_EQ(tensor.equal(some->held[1].at(name)), name != kParameter) << name;
  }
  // Both began alike: on average they went where the whole batch would.
  const at::Tensor mean =
      (some->held[0].at(kParameter) + some->held[1].at(kParameter)) / 2;
  EXPECT_TRUE(mean.allclose(all->held[0].at(kParameter), 1e-5, 1e-7));
}

TEST_P(ParameterTraitsTrainingTest, ItsGroupHasItsOwnOptimizer) {
  ParameterTraits decayed;
  decayed.optimizer_group = 1;
  UpdateOptions update;
  SgdOptions decay;
  decay.weight_decay = 0.5;
  update.further_optimizers = {decay};
  const auto by_trait = Train(GetParam(), Specs(decayed), update);
  ASSERT_TRUE(by_trait.ok()) << by_trait.status();
  update.optimizer_group = [](const std::string& name) -> int64_t {
    return name == kParameter ? 1 : 0;
  };
  const auto by_name = Train(GetParam(), Specs({}), update);
  ASSERT_TRUE(by_name.ok()) << by_name.status();
  const auto without = Train(GetParam(), Specs({}), {});
  for (const auto& [name, tensor] : by_trait->held[0]) {
    EXPECT_TRUE(tensor.equal(by_name->held[0].at(name))) << name;
    EXPECT_EQ(tensor.equal(without->held[0].at(name)), name != kParameter)
        << name;
  }
}

TEST_P(ParameterTraitsTrainingTest, WhatNoStrategyDoesIsRefusedByName) {
  ParameterTraits sharded;
  sharded.shard = ParameterShard{"data", 0};
  EXPECT_THAT(Train(GetParam(), Specs(sharded), {}).status().ToString(),
              HasSubstr("fc1.weight is sharded along data"));
  ParameterTraits elsewhere;
  elsewhere.reduce_axes = {"tensor"};
  EXPECT_THAT(Train(GetParam(), Specs(elsewhere), {}).status().ToString(),
              HasSubstr("fc1.weight has a trait along axis 'tensor'"));
}

INSTANTIATE_TEST_SUITE_P(Strategies, ParameterTraitsTrainingTest,
                         testing::Values(false, true), [](const auto& info) {
                           return info.param ? "Hybrid" : "Ddp";
                         });

Mesh MeshOf(int data, int pipe) {
  return *Mesh::Create(data * pipe, {.pipe = pipe});
}

TraitsByName Reduced(const std::vector<std::string>& axes) {
  ParameterTraits traits;
  traits.reduce_axes = axes;
  return {{"fc.weight", traits}};
}

TraitsByName Sharded(const std::string& axis) {
  ParameterTraits traits;
  traits.shard = ParameterShard{axis, 0};
  return {{"fc.weight", traits}};
}

TEST(TraitChecksTest, TakeWhatTheMeshCanDo) {
  for (const Mesh& mesh : {MeshOf(1, 1), MeshOf(2, 1), MeshOf(2, 3)}) {
    EXPECT_TRUE(CheckTraits({}, mesh).ok());
    EXPECT_TRUE(CheckTraits(Reduced({"data"}), mesh).ok());
    EXPECT_TRUE(CheckTraits(Reduced({}), mesh).ok());
  }
  // Along an axis of one rank nothing is cut.
  EXPECT_TRUE(CheckTraits(Sharded("data"), MeshOf(1, 2)).ok());
}

TEST(TraitChecksTest, RefuseByNameWhatItCannot) {
  const absl::Status unknown = CheckTraits(Reduced({"dta"}), MeshOf(2, 1));
  EXPECT_THAT(unknown, InvalidArgument("parameter fc.weight", "'dta'",
                                       "data 2 x pipe 1"));
  const absl::Status pipe =
      CheckTraits(Reduced({"data", "pipe"}), MeshOf(1, 2));
  EXPECT_THAT(pipe, InvalidArgument("fc.weight"));
  const absl::Status sharded = CheckTraits(Sharded("data"), MeshOf(3, 1));
  EXPECT_THAT(sharded,
              StatusIs(absl::StatusCode::kUnimplemented,
                       "fc.weight is sharded along data, which has 3 ranks"));
}

TEST(TraitChecksTest, SomeOptionsNeedEveryGradientReduced) {
  EXPECT_TRUE(CheckAllAreReduced(Reduced({"data"}), MeshOf(2, 1), "x").ok());
  EXPECT_TRUE(CheckAllAreReduced(Reduced({}), MeshOf(1, 2), "x").ok());
  EXPECT_THAT(CheckAllAreReduced(Reduced({}), MeshOf(2, 1), "clip_norm"),
              Says("fc.weight", "clip_norm"));
}

TEST(TraitChecksTest, SpecsNameTheirParametersInFull) {
  LayerSpec spec;
  spec.name = "fc";
  spec.traits = {{"weight", ParameterTraits()}};
  EXPECT_EQ(NamedTraits(LayerSpecs{spec}).count("fc.weight"), 1u);
}

// Weights that several layers share, wherever the model is cut.

// A copy of a weight "w0", "w1", ... in each stage, as one rank has it.
class Copies {
 public:
  explicit Copies(const std::vector<int>& stages) {
    for (const int stage : stages) {
      parameters_.emplace_back(absl::StrCat("w", stage),
                               at::ones({3, 5}).requires_grad_());
      flat_.push_back(std::move(MakeFlatBuffers({parameters_.back()}).front()));
    }
  }

  FlatBufferList buffers() const { return FlatBufferList(flat_); }
  void Give(size_t copy, double gradient) {
    parameters_[copy].second.mul(gradient).sum().backward();
  }
  // The copy's gradient; "none" without one.
  std::string grad(size_t copy) const {
    const at::Tensor& grad = parameters_[copy].second.grad();
    if (!grad.defined()) return "none";
    return absl::StrCat(grad[2][4].item<int64_t>());
  }

 private:
  NamedTensors parameters_;
  FlatBuffers flat_;
};

TiedGroup GroupOf(int members) {
  TiedGroup group;
  for (int i = 0; i < members; ++i) {
    group.push_back({i, absl::StrCat("w", i)});
  }
  return group;
}

// The gradient that each of three copies ends with, over that many ranks, where
// copy i has gradients[i] (0: none).
std::vector<std::string> SumOf(const std::vector<double>& gradients, int ranks,
                               TiedOrder order) {
  const Schedule schedule = *MakeSchedule("1f1b", {3, 1, 1});
  std::vector<std::string> sums(3);
  const auto run = [&](Communicator* group) -> absl::Status {
    const PipelineLayout layout = {
        std::vector<c10::Device>(3 / static_cast<size_t>(ranks), c10::kCPU),
        group};
    std::vector<int> mine;
    for (int i = 0; i < 3; ++i) {
      if (layout.IsHere(i)) mine.push_back(i);
    }
    Copies copies(mine);
    TANDEM_ASSIGN_OR_RETURN(
        const std::unique_ptr<TiedGradients> tied,
        TiedGradients::Create({GroupOf(3)}, schedule, layout, copies.buffers(),
                              order));
    EXPECT_FALSE(tied->empty());
    for (size_t i = 0; i < mine.size(); ++i) {
      const double gradient = gradients[static_cast<size_t>(mine[i])];
      if (gradient != 0) copies.Give(i, gradient);
    }
    TANDEM_RETURN_IF_ERROR(tied->Sum());
    for (size_t i = 0; i < mine.size(); ++i) {
      sums[static_cast<size_t>(mine[i])] = copies.grad(i);
    }
    return absl::OkStatus();
  };
  ExpectOk(ranks == 1 ? run(nullptr)
                      : RunThreadRanks(ranks, [&](Communicator& all) {
                          return run(&all);
                        }));
  return sums;
}

std::vector<std::string> Thrice(const std::string& each) {
  return {each, each, each};
}

TEST(TiedGradientsTest, EveryCopyGetsTheSum) {
  for (const TiedOrder order : {TiedOrder::kByRank, TiedOrder::kByCopy}) {
    for (const int ranks : {1, 3}) {
      EXPECT_EQ(SumOf({1, 2, 4}, ranks, order), Thrice("7"));
      EXPECT_EQ(SumOf({0, 2, 0}, ranks, order), Thrice("2"));
      EXPECT_EQ(SumOf({0, 0, 4}, ranks, order), Thrice("4"));
      EXPECT_EQ(SumOf({1, 0, 4}, ranks, order), Thrice("5"));
    }
  }
}

// The optimizer leaves it alone, as in a model in one piece.
TEST(TiedGradientsTest, AWeightThatNoCopyUsesHasNoGradient) {
  for (const TiedOrder order : {TiedOrder::kByRank, TiedOrder::kByCopy}) {
    for (const int ranks : {1, 3}) {
      EXPECT_EQ(SumOf({0, 0, 0}, ranks, order), Thrice("none"));
    }
  }
}

// 1e8 + 3 is 1e8, and 3 + 3 + 1e8 is not.
TEST(TiedGradientsTest, CopiesAreAddedFromTheLastToTheFirst) {
  for (const int ranks : {1, 3}) {
    EXPECT_EQ(SumOf({3, 3, 1e8}, ranks, TiedOrder::kByCopy),
              Thrice("100000000"));
    EXPECT_EQ(SumOf({1e8, 3, 3}, ranks, TiedOrder::kByCopy),
              Thrice("100000008"));
  }
}

// Names alone do not say which, where they lie in different stages.
TEST(TiedWeightsTest, AWeightThatTwoLayersMayHaveIsRefused) {
  LayerSpec user = LinearLayer("head", 4, 4);
  user.links.ties = {{"weight", "block.0.weight"}};
  const LayerSpecs specs = {LinearLayer("block", 4, 4),
                            LinearLayer("block.0", 4, 4), user};
  EXPECT_TRUE(TiedAcross(specs, {2}).ok());
  const absl::Status status = TiedAcross(specs, {1}).status();
  EXPECT_THAT(status,
              InvalidArgument("may be one of layer block or of layer block.0"));
}

}  // namespace
}  // namespace tandem::parameter_traits_test
