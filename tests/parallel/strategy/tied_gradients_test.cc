// Weights that several layers share, wherever the model is cut.

#include "parallel/strategy/stage/tied_gradients.h"

#include <ATen/Tensor.h>
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
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/layers/basic_layers.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/pipeline/model.h"
#include "parallel/schedule/schedules.h"

namespace tandem::tied_gradients_test {
namespace {

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
  // Of the copy: "none" without a gradient.
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

// As in a model in one piece: the optimizer leaves it alone.
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
}  // namespace tandem::tied_gradients_test
